//! ProtoData messages on their way into columns; `_native.pyi` documents the names.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::core::columns;
use super::core::table::{Options, Table};
use crate::columnar::{Found, take_apart};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Reader>()
}

#[pyclass(frozen, module = "streamer_native._native")]
struct Reader {
    wanted: HashSet<Vec<u8>>,
    longest: usize,
    most: usize,
}

/// Entries of metadata: row, start, length.
type Metadata = Vec<(i64, i64, i64)>;

#[pymethods]
impl Reader {
    #[new]
    fn new(wanted: Vec<String>, longest: u64, most: u64) -> Reader {
        Reader {
            wanted: wanted.into_iter().map(String::into_bytes).collect(),
            longest: usize::try_from(longest).unwrap_or(usize::MAX),
            most: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        starts: &Bound<'py, PyAny>,
        lengths: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyTuple>, Option<Metadata>)> {
        let options = Options {
            wanted: &|key| self.wanted.contains(key),
            longest: self.longest,
            most: self.most,
        };
        let (found, metadata) = take_apart(py, [buffer, starts, lengths], |messages| {
            let table = Table::read(messages, &options)?;
            let (layout, arena) = columns::block(&table, messages.bytes);
            let found = Found {
                layout,
                arena,
                odd: table.odd,
            };
            Ok((found, table.metadata))
        })?;
        let metadata = (!metadata.is_empty()).then_some(metadata);
        Ok((found.into_tuple(py)?, metadata))
    }
}
