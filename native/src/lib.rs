//! The compiled hot path: what `docs/native.md` says, behind the same seam as the plain Python one.

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
