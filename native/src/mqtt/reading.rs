//! Bytes of a connection to columns.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::core::acks;
use super::core::scan::{self, Row, Scanner, Topics};
use crate::arena::Arena;
use crate::columns::Array;
use crate::memory::Block;

/// Rows for which memory is kept from scan to scan.
const KEPT_ROWS: usize = 1 << 14;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MqttScanner>()?;
    module.add_function(wrap_pyfunction!(mqtt_scan_acks, module)?)
}

#[pyclass(module = "streamer_native._native")]
struct MqttScanner {
    scanner: Scanner,
    rows: Vec<Row>,
}

/// Memory, number of rows, where the scan ended, new topics, whether the codes begin anew.
type Scanned<'py> = (
    Bound<'py, Block>,
    usize,
    usize,
    Option<Bound<'py, PyList>>,
    bool,
);

#[pymethods]
impl MqttScanner {
    #[new]
    fn new(
        five: bool,
        largest: usize,
        from_server: bool,
        most: usize,
        most_bytes: usize,
    ) -> MqttScanner {
        MqttScanner {
            scanner: Scanner {
                five,
                largest,
                from_server,
                topics: Topics::new(most, most_bytes),
            },
            rows: Vec::new(),
        }
    }

    fn scan<'py>(
        &mut self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        start: usize,
        stop: usize,
        most: usize,
    ) -> PyResult<Scanned<'py>> {
        let buffer = Array::<u8>::of(buffer, "what is scanned")?;
        let bytes = buffer.slice();
        let bytes = &bytes[..stop.min(bytes.len())];
        let found = self.scanner.scan(bytes, start, most, &mut self.rows);
        let mut arena = Arena::take(scan::size(self.rows.len()));
        scan::fill(arena.bytes_mut(), &self.rows);
        let count = self.rows.len();
        if self.rows.capacity() > KEPT_ROWS {
            self.rows = Vec::new();
        }
        let names = match found.names.as_slice() {
            [] => None,
            names => Some(PyList::new(
                py,
                names.iter().map(|name| PyBytes::new(py, name)),
            )?),
        };
        Ok((
            Bound::new(py, Block { arena })?,
            count,
            found.end,
            names,
            found.anew,
        ))
    }

    fn add(&mut self, topic: &[u8]) {
        self.scanner.topics.add(topic);
    }

    fn clear(&mut self) {
        self.scanner.topics.clear();
    }
}

#[pyfunction]
fn mqtt_scan_acks<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    start: usize,
    stop: usize,
    five: bool,
    most: usize,
) -> PyResult<(Bound<'py, Block>, usize, usize)> {
    let buffer = Array::<u8>::of(buffer, "what is scanned")?;
    let bytes = buffer.slice();
    let (found, end) = acks::scan(&bytes[..stop.min(bytes.len())], start, five, most);
    let mut arena = Arena::take(acks::size(found.len()));
    acks::fill(arena.bytes_mut(), &found);
    Ok((Bound::new(py, Block { arena })?, found.len(), end))
}
