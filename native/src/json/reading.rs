//! Records of plain JSON on their way into columns; `_native.pyi` says what each name means.

use std::collections::HashSet;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::core::columns::{self, Form, Part};
use super::core::scan::Limits;
use super::core::table::{Field, Options, Outside, Payloads, Step, Table};
use crate::arena::Arena;
use crate::memory::Block;
use crate::protodata::{View, WORTH_DETACHING};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JsonReader>()
}

/// The steps of a pointer, each with the number of the element that it may be.
type Steps = Vec<(String, Option<usize>)>;

#[pyclass(frozen, module = "streamer_native._native")]
struct JsonReader {
    wanted: HashSet<Vec<u8>>,
    fields: Vec<Field>,
    each: bool,
    bare: bool,
    longest: usize,
    limits: Limits,
}

#[pymethods]
impl JsonReader {
    #[new]
    fn new(
        wanted: Vec<String>,
        fields: Vec<(String, Steps)>,
        each: bool,
        bare: bool,
        limits: (u64, u64, u64, u64),
    ) -> JsonReader {
        let bound = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let step = |(key, index): (String, Option<usize>)| Step {
            key: key.into_bytes(),
            index,
        };
        let field = |(key, steps): (String, Steps)| Field {
            key: key.into_bytes(),
            steps: steps.into_iter().map(step).collect(),
        };
        JsonReader {
            wanted: wanted.into_iter().map(String::into_bytes).collect(),
            fields: fields.into_iter().map(field).collect(),
            each,
            bare,
            longest: bound(limits.0),
            limits: Limits {
                depth: bound(limits.1),
                elements: bound(limits.2),
                keys: bound(limits.3),
            },
        }
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        starts: &Bound<'py, PyAny>,
        lengths: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (buffer, starts, lengths) = (View::of(buffer)?, View::of(starts)?, View::of(lengths)?);
        let payloads = Payloads {
            bytes: buffer.bytes(),
            starts: starts.numbers()?,
            lengths: lengths.numbers()?,
        };
        if payloads.starts.len() != payloads.lengths.len() {
            return Err(PyValueError::new_err(
                "there must be as many starts as lengths",
            ));
        }
        let work = move || {
            let wanted = |key: &[u8]| self.wanted.contains(key);
            let options = Options {
                wanted: &wanted,
                fields: &self.fields,
                each: self.each,
                bare: self.bare,
                longest: self.longest,
                limits: self.limits,
            };
            let table = Table::read(payloads, &options)?;
            let layout = columns::layout(&table, payloads.bytes);
            let mut arena = Arena::take(layout.size);
            columns::fill(arena.bytes_mut(), &layout, &table);
            let found = Found {
                lines: layout.lines,
                rare: layout.rare,
                parts: layout.parts.iter().map(Described::of).collect(),
                rows: table.rows.len(),
                odd: table.odd,
                arena,
            };
            Ok(found)
        };
        let size: i64 = payloads
            .lengths
            .iter()
            .fold(0, |sum, length| sum.saturating_add((*length).max(0)));
        let done = if size as usize >= WORTH_DETACHING {
            py.detach(work)
        } else {
            work()
        };
        let found = done.map_err(|outside: Outside| PyValueError::new_err(outside.to_string()))?;
        let parts: Vec<_> = found
            .parts
            .iter()
            .map(|part| part.tuple(py))
            .collect::<PyResult<Vec<_>>>()?;
        let odd = (!found.odd.is_empty()).then_some(found.odd);
        let block = Bound::new(py, Block { arena: found.arena })?;
        (block, found.rows, found.lines, found.rare, odd, parts).into_pyobject(py)
    }
}

struct Found {
    arena: Arena,
    rows: usize,
    lines: usize,
    rare: (usize, usize),
    odd: Vec<i64>,
    parts: Vec<Described>,
}

/// A part of a layout, without what it was made of.
struct Described {
    key: Vec<u8>,
    form: Form,
    line: usize,
    mask: Option<usize>,
    whole: Option<usize>,
    first: usize,
    count: usize,
    total: usize,
    offset: usize,
    splits: usize,
}

impl Described {
    fn of(part: &Part<'_>) -> Described {
        Described {
            key: part.column.key.clone(),
            form: part.form,
            line: part.line,
            mask: part.mask,
            whole: part.whole,
            first: part.column.first,
            count: part.count,
            total: part.total,
            offset: part.offset,
            splits: part.splits,
        }
    }

    fn tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let form = match self.form {
            Form::Wire => 0u8,
            Form::Mixed => 1,
            Form::Text => 2,
            Form::Copied => 3,
            Form::Integer => 4,
            Form::Double => 5,
            Form::Numbers => 6,
            Form::Boolean => 7,
            Form::DenseIntegers => 8,
            Form::DenseDoubles => 9,
            Form::RaggedIntegers => 10,
            Form::RaggedDoubles => 11,
            Form::Rare => 12,
        };
        let place = |at: Option<usize>| at.map_or(-1, |at| at as i64);
        (
            PyString::from_bytes(py, &self.key)?,
            form,
            self.line,
            place(self.mask),
            place(self.whole),
            self.first,
            self.count,
            self.total,
            self.offset,
            self.splits,
        )
            .into_pyobject(py)
    }
}
