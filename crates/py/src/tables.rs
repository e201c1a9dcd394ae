//! Results as tables that pandas, polars, pyarrow, DuckDB and others read, by the Arrow PyCapsule interface: the memory
//! is handed over as it is, and none of them is needed here.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>

use std::collections::HashMap;
use std::sync::Arc;

use anabranch_papers::{Kind, Row, Verdict};
use anabranch_report::output::{Column, Table as Columns};
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, RecordBatchOptions,
    StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Columns of equal length with names and types, for `pandas.DataFrame.from_arrow`, `polars.DataFrame`, `pyarrow.table`
/// and whoever else reads Arrow. Numbers that there are not are null.
#[pyclass(frozen, module = "anabranch._native")]
pub struct Table(RecordBatch);

fn fault(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(format!("a fault in anabranch, please report it: {error}"))
}

/// Numbers, null where they are none.
fn numbers(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(values.map(|value| Some(value).filter(|value| !value.is_nan())).collect::<Float64Array>())
}

fn array(column: Column) -> ArrayRef {
    match column {
        Column::F64(values) => numbers(values.into_iter()),
        Column::F32(values) => Arc::new(
            values.into_iter().map(|value| Some(value).filter(|value| !value.is_nan())).collect::<Float32Array>(),
        ),
        Column::U64(values) => Arc::new(UInt64Array::from(values)),
        Column::U32(values) => Arc::new(UInt32Array::from(values)),
        Column::I64(values) => Arc::new(Int64Array::from(values)),
        Column::Str(values) => Arc::new(StringArray::from(values)),
    }
}

impl Table {
    fn new(columns: Vec<(String, ArrayRef)>, metadata: HashMap<String, String>) -> PyResult<Table> {
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        let field = |(name, values): &(String, ArrayRef)| Field::new(name, values.data_type().clone(), true);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>()).with_metadata(metadata);
        let arrays = columns.into_iter().map(|(_, values)| values).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options).map(Table).map_err(fault)
    }

    /// One that a Parquet file would hold.
    pub fn of(columns: Columns) -> PyResult<Table> {
        let arrays = columns.columns.into_iter().map(|(name, column)| (name, array(column))).collect();
        Table::new(arrays, columns.metadata.into_iter().collect())
    }

    /// An experiment's figures beside the paper's, in the columns of its JSON.
    pub fn of_rows(rows: &[Row]) -> PyResult<Table> {
        let text = |pick: fn(&Row) -> &str| Arc::new(rows.iter().map(|row| Some(pick(row))).collect::<StringArray>());
        let name = |pick: fn(&Row) -> Option<&'static str>| Arc::new(rows.iter().map(pick).collect::<StringArray>());
        let number = |pick: fn(&Row) -> Option<f64>| numbers(rows.iter().map(|row| pick(row).unwrap_or(f64::NAN)));
        let columns: [(&str, ArrayRef); 9] = [
            ("subject", text(|row| &row.subject)),
            ("metric", text(|row| &row.metric)),
            ("unit", text(|row| &row.unit)),
            ("ours", number(|row| row.ours)),
            ("ci95", number(|row| row.ci95)),
            ("paper", number(|row| row.paper)),
            ("kind", name(|row| row.kind.map(Kind::name))),
            ("verdict", name(|row| row.verdict.map(Verdict::name))),
            ("note", text(|row| &row.note)),
        ];
        Table::new(columns.into_iter().map(|(name, values)| (name.to_owned(), values)).collect(), HashMap::new())
    }
}

#[pymethods]
impl Table {
    /// The columns' names, in their order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// What is said of the whole: the scenario's text, the seed, the version.
    #[getter]
    fn metadata(&self) -> HashMap<String, String> {
        self.0.schema_ref().metadata().iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    /// How many rows there are.
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<anabranch.Table: {} rows, {} columns>", self.0.num_rows(), self.0.num_columns())
    }

    /// The types of the columns, as Arrow's C interface has them.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.0.schema().as_ref()).map_err(fault)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows, as Arrow's C interface has them. Another schema may be asked for; the interface lets a producer answer
    /// with its own.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let rows = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(rows)), c"arrow_array_stream")
    }
}
