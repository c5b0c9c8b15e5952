//! Avro records on their way into columns; `_native.pyi` documents the names.

use std::collections::HashSet;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::core::columns;
use super::core::program::{Field, Node, Program, Unit};
use super::core::table::{Options, Table};
use super::objects::{More, Objects};
use crate::columnar::{Found, ViewedSpans, take_apart};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<AvroProgram>()?;
    module.add_class::<AvroReader>()
}

#[derive(FromPyObject)]
struct Given<'py> {
    #[pyo3(item(0))]
    kind: u8,
    #[pyo3(item(1))]
    number: i64,
    #[pyo3(item(2))]
    inner: Vec<usize>,
    #[pyo3(item(3))]
    names: Vec<Option<String>>,
    #[pyo3(item(4))]
    more: Bound<'py, PyAny>,
}

impl Given<'_> {
    fn node(&self) -> PyResult<Node> {
        let size = usize::try_from(self.number).unwrap_or(0);
        let made = !self.more.is_none();
        let only = || self.inner.first().copied().ok_or_else(|| none(self.kind));
        let names = || {
            let bytes = |name: &Option<String>| name.clone().map(String::into_bytes);
            self.names.iter().map(bytes)
        };
        let whole = |small, unit| Node::Integer { small, unit };
        Ok(match self.kind {
            0 => Node::Null,
            1 => Node::Boolean,
            2 => whole(true, Unit::One),
            3 => whole(false, Unit::One),
            4 => whole(true, Unit::Days),
            5 => whole(false, Unit::Parts(self.number.max(1))),
            6 => whole(self.number == 32, Unit::Real),
            7 => Node::Float,
            8 => Node::Double,
            9 => Node::Bytes { most: size, made },
            10 => Node::Fixed { size, made },
            11 => Node::Text,
            12 => Node::TextAsBytes,
            13 => Node::Enum(names().collect()),
            14 => Node::Array(only()?),
            15 => Node::Map(only()?),
            16 => Node::Union(self.inner.clone()),
            17 => {
                let field = |(node, key): (&usize, Option<Vec<u8>>)| Field { node: *node, key };
                Node::Record(self.inner.iter().zip(names()).map(field).collect())
            }
            18 => Node::Refused,
            other => return Err(none(other)),
        })
    }

    fn more(&self, py: Python<'_>) -> PyResult<More> {
        let text = |name: &String| PyString::intern(py, name).unbind();
        Ok(match self.kind {
            9 | 10 if !self.more.is_none() => More::Call(self.more.clone().unbind()),
            13 => {
                let symbols = self.names.iter();
                More::Symbols(
                    symbols
                        .map(|name| text(name.as_ref().unwrap_or(&String::new())))
                        .collect(),
                )
            }
            17 => {
                let keys = self.names.iter().map(|name| name.as_ref().map(text));
                let others: Vec<(Bound<'_, PyString>, Bound<'_, PyAny>)> = self.more.extract()?;
                let others = others
                    .into_iter()
                    .map(|(key, value)| (key.unbind(), value.unbind()));
                More::Record(keys.collect(), others.collect())
            }
            _ => More::Nothing,
        })
    }
}

fn none(kind: u8) -> PyErr {
    PyValueError::new_err(format!(
        "{kind} is no type, or lacks the type of its values"
    ))
}

#[pyclass(frozen, module = "streamer_native._native")]
struct AvroProgram {
    objects: Objects,
}

#[pymethods]
impl AvroProgram {
    #[new]
    fn new(py: Python<'_>, types: Vec<Given<'_>>) -> PyResult<AvroProgram> {
        let nodes = types.iter().map(Given::node).collect::<PyResult<_>>()?;
        let more = types
            .iter()
            .map(|given| given.more(py))
            .collect::<PyResult<_>>()?;
        let program = Program::of(nodes)
            .ok_or_else(|| PyValueError::new_err("the types are no table of types of records"))?;
        Ok(AvroProgram {
            objects: Objects { program, more },
        })
    }

    fn values<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        buffer: &Bound<'py, PyAny>,
        starts: &Bound<'py, PyAny>,
        lengths: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let held = ViewedSpans::of([buffer, starts, lengths])?;
        let spans = held.spans()?;
        let mut fields = self.objects.program.fields().iter();
        let field = fields
            .find(|field| field.key.as_deref() == Some(key.as_bytes()))
            .ok_or_else(|| PyValueError::new_err(format!("the records have no field {key}")))?;
        let value = |row| match spans.get(row) {
            Some(text) => Ok(self.objects.value(py, field.node, text, 0)?.0),
            None => Ok(py.None().into_bound(py)),
        };
        let values = (0..spans.len()).map(value).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, values)
    }
}

#[pyclass(frozen, module = "streamer_native._native")]
struct AvroReader {
    program: Py<AvroProgram>,
    wanted: HashSet<Vec<u8>>,
    prefix: Vec<u8>,
    longest: usize,
}

#[pymethods]
impl AvroReader {
    #[new]
    fn new(
        program: Py<AvroProgram>,
        wanted: Vec<String>,
        prefix: Vec<u8>,
        longest: u64,
    ) -> AvroReader {
        AvroReader {
            program,
            wanted: wanted.into_iter().map(String::into_bytes).collect(),
            prefix,
            longest: usize::try_from(longest).unwrap_or(usize::MAX),
        }
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        starts: &Bound<'py, PyAny>,
        lengths: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let program = &self.program.get().objects.program;
        let options = Options {
            wanted: &|key| self.wanted.contains(key),
            prefix: &self.prefix,
            longest: self.longest,
        };
        let found = take_apart(py, [buffer, starts, lengths], |payloads| {
            let table = Table::read(payloads, program, &options)?;
            let (layout, arena) = columns::block(&table, program);
            Ok(Found {
                layout,
                arena,
                odd: table.odd,
            })
        })?;
        found.into_tuple(py)
    }
}
