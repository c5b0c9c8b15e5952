//! The results of readers for Python: columns in a block of bytes, and their places. `_native.pyi` documents the names.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::WORTH_DETACHING;
use super::core::block::{Layout, Part};
use super::core::spans::{Outside, Spans};
use super::view::View;
use crate::arena::Arena;
use crate::memory::Block;

/// The columns of some records.
pub struct Found {
    pub layout: Layout,
    pub arena: Arena,
    /// Positions of the records that are left to Python, rising.
    pub odd: Vec<i64>,
}

/// The result of `work` for the strings of a `Spans`. Other threads may run meanwhile if they are long.
pub fn take_apart<T: Send>(
    py: Python<'_>,
    [buffer, starts, lengths]: [&Bound<'_, PyAny>; 3],
    work: impl FnOnce(Spans<'_>) -> Result<T, Outside> + Send,
) -> PyResult<T> {
    let (buffer, starts, lengths) = (View::of(buffer)?, View::of(starts)?, View::of(lengths)?);
    let spans = Spans {
        bytes: buffer.bytes(),
        starts: starts.numbers()?,
        lengths: lengths.numbers()?,
    };
    if spans.starts.len() != spans.lengths.len() {
        return Err(PyValueError::new_err(
            "there must be as many starts as lengths",
        ));
    }
    let done = if spans.total() >= WORTH_DETACHING {
        py.detach(move || work(spans))
    } else {
        work(spans)
    };
    done.map_err(|outside| PyValueError::new_err(outside.to_string()))
}

impl Found {
    /// (block, rows, lines, rare, odd, parts)
    pub fn into_tuple(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        let layout = self.layout;
        let parts: Vec<_> = layout
            .parts
            .iter()
            .map(|part| described(py, part))
            .collect::<PyResult<_>>()?;
        let odd = (!self.odd.is_empty()).then_some(self.odd);
        let block = Bound::new(py, Block { arena: self.arena })?;
        (block, layout.rows, layout.lines, layout.rare, odd, parts).into_pyobject(py)
    }
}

fn described<'py>(py: Python<'py>, part: &Part) -> PyResult<Bound<'py, PyTuple>> {
    let place = |at: Option<usize>| at.map_or(-1, |at| at as i64);
    (
        PyString::from_bytes(py, &part.key)?,
        part.form as u8,
        part.line,
        place(part.mask),
        place(part.whole),
        part.first,
        part.element,
        PyTuple::new(py, &part.shape)?,
        part.total,
        part.offset,
        part.splits,
    )
        .into_pyobject(py)
}
