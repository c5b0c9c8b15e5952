//! A block of messages to be handed over, as Python gives it: columns.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::columnar::core::spans::Spans;
use crate::columns::{Array, HeaderColumns, HeaderCut, Strings};

use super::library::ANY_PARTITION;

/// Columns of Python's, checked, and kept alive.
pub struct Outgoing {
    values: Strings,
    keys: Option<Strings>,
    headers: Option<HeaderColumns>,
    timestamps: Option<Array<i64>>,
    codes: Option<Array<i64>>,
    partitions: Option<Array<i64>>,
}

impl Outgoing {
    /// Of a `Spans`, and as many keys (a `Spans`), headers (a `Headers`), timestamps, places in `topics` and numbers of
    /// partitions, each or none.
    pub fn of(
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        numbers: [Option<&Bound<'_, PyAny>>; 3],
        topics: usize,
    ) -> PyResult<Outgoing> {
        let values = Strings::of(values, "values")?;
        let count = values.len();
        let column =
            |object: Option<&Bound<'_, PyAny>>, name: &str| -> PyResult<Option<Array<i64>>> {
                object
                    .map(|object| Array::<i64>::of(object, name)?.of_length(count, name))
                    .transpose()
            };
        let [timestamps, codes, partitions] = numbers;
        let outgoing = Outgoing {
            keys: keys.map(|keys| Strings::of(keys, "keys")).transpose()?,
            headers: headers
                .map(|headers| HeaderColumns::of(headers, count))
                .transpose()?,
            timestamps: column(timestamps, "timestamps")?,
            codes: column(codes, "codes")?,
            partitions: column(partitions, "partitions")?,
            values,
        };
        if outgoing
            .keys
            .as_ref()
            .is_some_and(|keys| keys.len() != count)
        {
            return Err(PyValueError::new_err(
                "there must be as many keys as values",
            ));
        }
        let known = 0..topics as i64;
        let codes = outgoing.codes.as_ref().map_or(&[][..], Array::slice);
        if topics == 0 || codes.iter().any(|code| !known.contains(code)) {
            return Err(PyValueError::new_err("codes must be places in topics"));
        }
        let partitions = outgoing.partitions.as_ref().map_or(&[][..], Array::slice);
        if partitions
            .iter()
            .any(|number| !(0..=i64::from(i32::MAX)).contains(number))
        {
            return Err(PyValueError::new_err("partitions must be numbers of some"));
        }
        Ok(outgoing)
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn rows(&self) -> Rows<'_> {
        Rows {
            values: self.values.spans(),
            keys: self.keys.as_ref().map(Strings::spans),
            headers: self.headers.as_ref().map(HeaderColumns::cut),
            timestamps: self.timestamps.as_ref().map(Array::slice),
            codes: self.codes.as_ref().map(Array::slice),
            partitions: self.partitions.as_ref().map(Array::slice),
        }
    }
}

/// The same as slices.
pub struct Rows<'a> {
    values: Spans<'a>,
    keys: Option<Spans<'a>>,
    headers: Option<HeaderCut<'a>>,
    timestamps: Option<&'a [i64]>,
    codes: Option<&'a [i64]>,
    partitions: Option<&'a [i64]>,
}

impl<'a> Rows<'a> {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether messages have a key and a value only, and go to the first topic, wherever their keys choose.
    pub fn is_plain(&self) -> bool {
        self.headers.is_none()
            && self.timestamps.is_none()
            && self.codes.is_none()
            && !self.names_partitions()
    }

    pub fn value(&self, row: usize) -> Option<&'a [u8]> {
        self.values.get(row)
    }

    /// Bytes of the value; 0 for none.
    pub fn size(&self, row: usize) -> usize {
        self.values.size(row)
    }

    pub fn key(&self, row: usize) -> Option<&'a [u8]> {
        self.keys.and_then(|keys| keys.get(row))
    }

    /// The headers of this message, if it has any.
    pub fn headers(&self, row: usize) -> Option<impl ExactSizeIterator<Item = HeaderOf<'a>>> {
        let headers = self.headers?;
        let range = headers.range(row);
        (!range.is_empty()).then(|| range.map(move |at| headers.get(at)))
    }

    /// In milliseconds, 0 for now; none if no message has one.
    pub fn timestamp(&self, row: usize) -> Option<i64> {
        self.timestamps.map(|stamps| stamps[row].max(0))
    }

    /// Whether messages name the partitions that they go to.
    pub fn names_partitions(&self) -> bool {
        self.partitions.is_some()
    }

    /// The partition that it names.
    pub fn partition(&self, row: usize) -> Option<i32> {
        self.partitions
            .map(|numbers| i32::try_from(numbers[row]).unwrap_or(ANY_PARTITION))
    }

    /// Its place among the topics.
    pub fn topic(&self, row: usize) -> usize {
        self.codes
            .map_or(0, |codes| usize::try_from(codes[row]).unwrap_or(usize::MAX))
    }
}

/// Name and value of a header; `None`: without a value.
pub type HeaderOf<'a> = (&'a [u8], Option<&'a [u8]>);

/// Values without anything else, for tests.
#[cfg(test)]
pub struct Sample {
    bytes: Vec<u8>,
    starts: Vec<i64>,
    lengths: Vec<i64>,
}

#[cfg(test)]
impl Sample {
    /// These values, behind so many rows that are null.
    pub fn of(values: &[Option<&[u8]>], behind: usize) -> Sample {
        let mut sample = Sample {
            bytes: Vec::new(),
            starts: vec![0; behind],
            lengths: vec![-1; behind],
        };
        for value in values {
            sample.starts.push(sample.bytes.len() as i64);
            sample
                .lengths
                .push(value.map_or(-1, |value| value.len() as i64));
            sample.bytes.extend_from_slice(value.unwrap_or_default());
        }
        sample
    }

    pub fn rows(&self) -> Rows<'_> {
        Rows {
            values: Spans {
                bytes: &self.bytes,
                starts: &self.starts,
                lengths: &self.lengths,
            },
            keys: None,
            headers: None,
            timestamps: None,
            codes: None,
            partitions: None,
        }
    }
}
