//! Records of plain JSON on their way into columns; `_native.pyi` documents the names.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::core::columns;
use super::core::envelope::Envelope;
use super::core::pointer::{Field, Step};
use super::core::scan::Limits;
use super::core::stated::Stated;
use super::core::table::{Options, Table};
use crate::columnar::{Found, take_apart};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<JsonReader>()
}

/// The steps of a pointer, each with the number of the element that it may be.
type Steps = Vec<(String, Option<usize>)>;

#[pyclass(frozen, module = "streamer_native._native")]
struct JsonReader {
    wanted: HashSet<Vec<u8>>,
    fields: Vec<Field>,
    envelope: Envelope,
    types: HashMap<Vec<u8>, Stated>,
    each: bool,
    bare: bool,
    nan_is_missing: bool,
    longest: usize,
    limits: Limits,
}

#[pymethods]
impl JsonReader {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        wanted: Vec<String>,
        fields: Vec<(String, Steps)>,
        at: Steps,
        outer: Vec<(String, Steps)>,
        each: bool,
        bare: bool,
        nan_is_missing: bool,
        limits: (u64, u64, u64, u64),
        types: Vec<(String, String)>,
    ) -> JsonReader {
        let bound = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let steps = |steps: Steps| -> Vec<Step> {
            let step = |(key, index): (String, Option<usize>)| Step {
                key: key.into_bytes(),
                index,
            };
            steps.into_iter().map(step).collect()
        };
        let keyed = |fields: Vec<(String, Steps)>| -> Vec<Field> {
            let field = |(key, places): (String, Steps)| Field {
                key: key.into_bytes(),
                steps: steps(places),
            };
            fields.into_iter().map(field).collect()
        };
        JsonReader {
            wanted: wanted.into_iter().map(String::into_bytes).collect(),
            envelope: Envelope::new(steps(at), keyed(outer)),
            fields: keyed(fields),
            types: types
                .into_iter()
                .map(|(key, name)| (key.into_bytes(), Stated::named(&name)))
                .collect(),
            each,
            bare,
            nan_is_missing,
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
        let options = Options {
            wanted: &|key| self.wanted.contains(key),
            stated: &|key| self.types.get(key).copied(),
            fields: &self.fields,
            envelope: &self.envelope,
            each: self.each,
            bare: self.bare,
            nan_is_missing: self.nan_is_missing,
            longest: self.longest,
            limits: self.limits,
        };
        let found = take_apart(py, [buffer, starts, lengths], |payloads| {
            let table = Table::read(payloads, &options)?;
            let (layout, arena) = columns::block(&table, payloads.bytes);
            Ok(Found {
                layout,
                arena,
                odd: table.odd,
            })
        })?;
        found.into_tuple(py)
    }
}
