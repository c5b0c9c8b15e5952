//! Columns of Python's (`pipelines.data.spans.Spans`, `connectors.headers.Headers`) as slices, checked once.
//!
//! The maker of such a column promises never to write to it. Numbers copied out of it are checked again where they are
//! used, so that a broken promise gives wrong bytes, not bytes outside the buffer.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::columnar::core::spans::{NULL, Outside, Spans};

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
        let spans = strings.spans();
        let outside = |row: &usize| spans.lengths[*row] != NULL && spans.get(*row).is_none();
        match (0..count).find(outside) {
            None => Ok(strings),
            Some(row) => Err(PyValueError::new_err(format!("{name}: {}", Outside(row)))),
        }
    }

    pub fn len(&self) -> usize {
        self.starts.slice().len()
    }

    /// The same as slices: asking Python's buffers for their size costs a division each time.
    pub fn spans(&self) -> Spans<'_> {
        Spans {
            bytes: self.bytes.slice(),
            starts: self.starts.slice(),
            lengths: self.lengths.slice(),
        }
    }
}

/// The headers of N messages.
pub struct HeaderColumns {
    names: Strings,
    values: Strings,
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
        let cut = columns.cut();
        let there = cut.names.len().min(cut.values.len()) as i64;
        let wrong = cut.starts.iter().zip(cut.counts).any(|(&start, &count)| {
            count != 0 && (start < 0 || count < 0 || start.saturating_add(count) > there)
        });
        if wrong {
            return Err(PyValueError::new_err(
                "headers: a message has some that are not there",
            ));
        }
        Ok(columns)
    }

    pub fn cut(&self) -> HeaderCut<'_> {
        HeaderCut {
            names: self.names.spans(),
            values: self.values.spans(),
            starts: self.starts.slice(),
            counts: self.counts.slice(),
        }
    }
}

/// `HeaderColumns`, looked into.
#[derive(Clone, Copy)]
pub struct HeaderCut<'a> {
    names: Spans<'a>,
    values: Spans<'a>,
    starts: &'a [i64],
    counts: &'a [i64],
}

impl<'a> HeaderCut<'a> {
    /// Places of the headers of this message.
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        let there = self.names.len().min(self.values.len());
        let start = usize::try_from(self.starts[row]).unwrap_or(0).min(there);
        let count = usize::try_from(self.counts[row]).unwrap_or(0);
        start..start + count.min(there - start)
    }

    /// Name and value of the header at this place.
    pub fn get(&self, at: usize) -> (&'a [u8], Option<&'a [u8]>) {
        (self.names.get(at).unwrap_or_default(), self.values.get(at))
    }
}
