//! Values as Python's objects, the same as those of fastavro.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString};

use super::core::column::{bits, widened};
use super::core::program::{Node, Program, Unit};
use super::core::scan;

/// What is needed beside the bytes to make the objects of a type.
pub enum More {
    Nothing,
    /// A function of the bytes.
    Call(Py<PyAny>),
    Symbols(Vec<Py<PyString>>),
    /// The keys of a record's fields, and keys and values that every record has.
    Record(Vec<Option<Py<PyString>>>, Vec<(Py<PyString>, Py<PyAny>)>),
}

/// The types of a schema, with the parts needed to make their objects.
pub struct Objects {
    pub program: Program,
    /// One for each type.
    pub more: Vec<More>,
}

impl Objects {
    /// The value of this type that begins at `at`, and where it ends. Raises `ValueError` for bytes that were not read
    /// as such a value before, and the exceptions of functions that it calls.
    pub fn value<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        text: &[u8],
        at: usize,
    ) -> PyResult<(Bound<'py, PyAny>, usize)> {
        let more = &self.more[place];
        let found = match self.program.node(place) {
            Node::Null => (py.None().into_bound(py), at),
            Node::Boolean => {
                let (value, end) = there(scan::boolean(text, at))?;
                (PyBool::new(py, value).to_owned().into_any(), end)
            }
            Node::Integer { small, unit } => {
                let (value, end) = there(scan::integer(text, at, *small))?;
                let made = unit.bits(value);
                let object = match unit {
                    Unit::Real => PyFloat::new(py, f64::from_bits(made)).into_any(),
                    _ => (made as i64).into_pyobject(py)?.into_any(),
                };
                (object, end)
            }
            Node::Float => {
                let (raw, end) = there(scan::fixed(text, at, 4))?;
                let value = f64::from_bits(widened(raw));
                (PyFloat::new(py, value).into_any(), end)
            }
            Node::Double => {
                let (raw, end) = there(scan::fixed(text, at, 8))?;
                let value = f64::from_bits(bits(raw));
                (PyFloat::new(py, value).into_any(), end)
            }
            Node::Bytes { .. } => {
                let (raw, end) = there(scan::bytes(text, at))?;
                (made(py, raw, more)?, end)
            }
            Node::Fixed { size, .. } => {
                let (raw, end) = there(scan::fixed(text, at, *size))?;
                (made(py, raw, more)?, end)
            }
            Node::Text => {
                let (raw, end) = there(scan::string(text, at))?;
                (PyString::new(py, raw).into_any(), end)
            }
            Node::TextAsBytes => {
                let (raw, end) = there(scan::string(text, at))?;
                (PyBytes::new(py, raw.as_bytes()).into_any(), end)
            }
            Node::Enum(symbols) => {
                let (index, end) = there(scan::choice(text, at, symbols.len()))?;
                let More::Symbols(texts) = more else {
                    return Err(broken());
                };
                (texts[index].bind(py).clone().into_any(), end)
            }
            Node::Array(inner) => self.list(py, *inner, text, at)?,
            Node::Map(inner) => self.map(py, *inner, text, at)?,
            Node::Union(branches) => {
                let (index, begin) = there(scan::choice(text, at, branches.len()))?;
                self.value(py, branches[index], text, begin)?
            }
            Node::Record(_) => self.record(py, place, text, at)?,
            Node::Refused => return Err(broken()),
        };
        Ok(found)
    }

    fn list<'py>(
        &self,
        py: Python<'py>,
        inner: usize,
        text: &[u8],
        at: usize,
    ) -> PyResult<(Bound<'py, PyAny>, usize)> {
        let list = PyList::empty(py);
        let end = self.elements(text, at, |at| {
            let (value, end) = self.value(py, inner, text, at)?;
            list.append(value)?;
            Ok(end)
        })?;
        Ok((list.into_any(), end))
    }

    fn map<'py>(
        &self,
        py: Python<'py>,
        inner: usize,
        text: &[u8],
        at: usize,
    ) -> PyResult<(Bound<'py, PyAny>, usize)> {
        let map = PyDict::new(py);
        let end = self.elements(text, at, |at| {
            let (key, at) = there(scan::string(text, at))?;
            let (value, end) = self.value(py, inner, text, at)?;
            map.set_item(key, value)?;
            Ok(end)
        })?;
        Ok((map.into_any(), end))
    }

    fn record<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        text: &[u8],
        mut at: usize,
    ) -> PyResult<(Bound<'py, PyAny>, usize)> {
        let (Node::Record(fields), More::Record(keys, others)) =
            (self.program.node(place), &self.more[place])
        else {
            return Err(broken());
        };
        let record = PyDict::new(py);
        for (field, key) in fields.iter().zip(keys) {
            at = match key {
                Some(key) => {
                    let (value, end) = self.value(py, field.node, text, at)?;
                    record.set_item(key.bind(py), value)?;
                    end
                }
                None => there(scan::skip(&self.program, field.node, text, at))?,
            };
        }
        for (key, value) in others {
            record.set_item(key.bind(py), value.bind(py))?;
        }
        Ok((record.into_any(), at))
    }

    /// As `scan::elements`, of which `each` may raise an exception.
    fn elements(
        &self,
        text: &[u8],
        at: usize,
        mut each: impl FnMut(usize) -> PyResult<usize>,
    ) -> PyResult<usize> {
        let mut raised = None;
        let end = scan::elements(text, at, |at| {
            each(at).map_err(|error| raised = Some(error)).ok()
        });
        match raised {
            Some(error) => Err(error),
            None => there(end),
        }
    }
}

fn made<'py>(py: Python<'py>, raw: &[u8], more: &More) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new(py, raw).into_any();
    match more {
        More::Call(make) => make.bind(py).call1((bytes,)),
        _ => Ok(bytes),
    }
}

fn there<T>(found: Option<T>) -> PyResult<T> {
    found.ok_or_else(broken)
}

fn broken() -> PyErr {
    PyValueError::new_err("these bytes are no value of the type")
}
