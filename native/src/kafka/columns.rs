//! Columns of Python's (`pipelines.spans.Spans`, `connectors.headers.Headers`) as slices, checked once.
//!
//! Who makes such a column promises never to write to it. What is copied out of it is checked again where it is read,
//! so that a broken promise gives wrong bytes, not somebody else's.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// One array, contiguous, of a known type.
pub struct Array<T: Element>(PyBuffer<T>);

impl<T: Element> Array<T> {
    pub fn of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Array<T>> {
        let buffer = PyBuffer::<T>::get(object)
            .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))?;
        if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(format!(
                "{name} must be one row of numbers side by side"
            )));
        }
        Ok(Array(buffer))
    }

    pub fn slice(&self) -> &[T] {
        let count = self.0.item_count();
        if count == 0 {
            return &[];
        }
        // Safety: contiguous, of this type, kept alive by the buffer, and not written to, as promised.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), count) }
    }

    pub fn of_length(self, count: usize, name: &str) -> PyResult<Array<T>> {
        if self.0.item_count() != count {
            return Err(PyValueError::new_err(format!(
                "{name} has {} entries, not {count}",
                self.0.item_count()
            )));
        }
        Ok(self)
    }
}

/// N byte strings, some of them null.
pub struct Strings {
    bytes: Array<u8>,
    starts: Array<i64>,
    lengths: Array<i64>,
}

impl Strings {
    /// The strings of a `Spans`. An error for one that does not lie inside its buffer.
    pub fn of(spans: &Bound<'_, PyAny>, name: &str) -> PyResult<Strings> {
        let bytes = Array::<u8>::of(&spans.getattr("buffer")?, name)?;
        let starts = Array::<i64>::of(&spans.getattr("starts")?, name)?;
        let count = starts.slice().len();
        let lengths = Array::<i64>::of(&spans.getattr("lengths")?, name)?.of_length(count, name)?;
        let strings = Strings {
            bytes,
            starts,
            lengths,
        };
        match (0..count).find(|&at| !strings.is_inside(at)) {
            None => Ok(strings),
            Some(at) => Err(PyValueError::new_err(format!(
                "{name}: entry {at} does not lie inside its buffer"
            ))),
        }
    }

    pub fn len(&self) -> usize {
        self.starts.slice().len()
    }

    /// The string at this place; `None` for null.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let (start, length) = (self.starts.slice()[at], self.lengths.slice()[at]);
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let length = usize::try_from(length).ok()?;
        self.bytes.slice().get(start..start.checked_add(length)?)
    }

    fn is_inside(&self, at: usize) -> bool {
        self.lengths.slice()[at] == -1 || self.get(at).is_some()
    }
}

/// The headers of N messages.
pub struct HeaderColumns {
    pub names: Strings,
    pub values: Strings,
    starts: Array<i64>,
    counts: Array<i64>,
}

impl HeaderColumns {
    /// The columns of a `Headers` for `count` messages.
    pub fn of(headers: &Bound<'_, PyAny>, count: usize) -> PyResult<HeaderColumns> {
        let columns = HeaderColumns {
            names: Strings::of(&headers.getattr("names")?, "names of headers")?,
            values: Strings::of(&headers.getattr("values")?, "values of headers")?,
            starts: Array::of(&headers.getattr("starts")?, "headers")?
                .of_length(count, "headers")?,
            counts: Array::of(&headers.getattr("counts")?, "headers")?
                .of_length(count, "headers")?,
        };
        let there = columns.names.len().min(columns.values.len());
        let wrong = (0..count).any(|row| {
            match (columns.starts.slice()[row], columns.counts.slice()[row]) {
                (_, 0) => false,
                (start, length) => {
                    start < 0 || length < 0 || start.saturating_add(length) > there as i64
                }
            }
        });
        if wrong {
            return Err(PyValueError::new_err(
                "headers: a message has some that are not there",
            ));
        }
        Ok(columns)
    }

    /// Where the headers of this message begin, and how many there are.
    pub fn range(&self, row: usize) -> (usize, usize) {
        let there = self.names.len().min(self.values.len());
        let start = usize::try_from(self.starts.slice()[row])
            .unwrap_or(0)
            .min(there);
        let count = usize::try_from(self.counts.slice()[row]).unwrap_or(0);
        (start, count.min(there - start))
    }
}
