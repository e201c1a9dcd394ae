//! Tables as Parquet files: typed columns of equal length, compressed, readable
//! by pandas, Polars, DuckDB and R.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, IntType, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::{OutputError, Staged, stage_or};

/// Rows of one row group. A reader holds one group at a time, and the thesis's
/// longest run, 300 000 s, is one.
const ROWS_PER_GROUP: usize = 1 << 20;

/// Columns of equal length, and what is to be known about them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Name and values of every column, in the order of the file. A name carries
    /// its unit, such as `throughput_bytes_per_sec`.
    pub columns: Vec<(String, Column)>,
    /// Keys and values for the file's metadata, in this order: the seed, the
    /// controller, the scenario's text.
    pub metadata: Vec<(String, String)>,
}

/// The values of one column.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// 64-bit floating point.
    F64(Vec<f64>),
    /// 32-bit floating point.
    F32(Vec<f32>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// Text.
    Str(Vec<String>),
}

impl Table {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column at the end; `name` carries the unit.
    pub fn column(mut self, name: impl Into<String>, values: Column) -> Self {
        self.columns.push((name.into(), values));
        self
    }

    /// Adds an entry to the file's metadata.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Writes the table to `path` as a Parquet file, in one step as
    /// [`write_atomically`](super::write_atomically) does. Equal tables give
    /// equal bytes.
    ///
    /// # Errors
    ///
    /// Columns of unequal length or of the same name, a full disk, and whatever
    /// else the operating system has to say.
    pub fn write_parquet(&self, path: &Path) -> Result<(), OutputError> {
        self.stage_parquet(path)?.commit()
    }

    /// [`write_parquet`](Self::write_parquet) up to the last step, as
    /// [`stage`](super::stage) does.
    ///
    /// # Errors
    ///
    /// As [`write_parquet`](Self::write_parquet).
    pub fn stage_parquet(&self, path: &Path) -> Result<Staged, OutputError> {
        self.check(path)?;
        stage_or(path, |writer| self.encode(writer).map_err(|error| parquet_error(path, error)))
    }

    fn check(&self, path: &Path) -> Result<(), OutputError> {
        let mut names = BTreeSet::new();
        for (name, column) in &self.columns {
            let (first, expected) = (&self.columns[0].0, self.columns[0].1.len());
            if column.len() != expected {
                return Err(OutputError::UnequalColumns {
                    path: path.to_path_buf(),
                    first: first.clone(),
                    expected,
                    column: name.clone(),
                    rows: column.len(),
                });
            }
            if !names.insert(name) {
                return Err(OutputError::DuplicateColumn { path: path.to_path_buf(), column: name.clone() });
            }
        }
        Ok(())
    }

    fn encode<W: Write + Send>(&self, writer: W) -> Result<(), ParquetError> {
        let fields: Result<Vec<_>, ParquetError> =
            self.columns.iter().map(|(name, column)| column.field(name).map(Arc::new)).collect();
        let schema = Type::group_type_builder("run").with_fields(fields?).build()?;
        let metadata = self.metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // The default names the library's version, and an update of it alone
            // would then change every file.
            .set_created_by("anabranch".to_owned())
            .set_key_value_metadata(Some(metadata))
            .build();
        let mut file = SerializedFileWriter::new(writer, Arc::new(schema), Arc::new(properties))?;
        let rows = self.columns.first().map_or(0, |(_, column)| column.len());
        for start in (0..rows).step_by(ROWS_PER_GROUP) {
            let end = rows.min(start + ROWS_PER_GROUP);
            let mut group = file.next_row_group()?;
            for (_, column) in &self.columns {
                column.encode(start..end, &mut group)?;
            }
            group.close()?;
        }
        file.close()?;
        Ok(())
    }
}

impl Column {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::Str(values) => values.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn field(&self, name: &str) -> Result<Type, ParquetError> {
        let unsigned = |bit_width| LogicalType::Integer(IntType { bit_width, is_signed: false });
        let (physical, logical) = match self {
            Self::F64(_) => (Physical::DOUBLE, None),
            Self::F32(_) => (Physical::FLOAT, None),
            Self::U64(_) => (Physical::INT64, Some(unsigned(64))),
            Self::U32(_) => (Physical::INT32, Some(unsigned(32))),
            Self::I64(_) => (Physical::INT64, None),
            Self::Str(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical)
            .build()
    }

    fn encode<W: Write + Send>(
        &self,
        rows: std::ops::Range<usize>,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let mut column = group.next_column()?.expect("the schema was made from the same columns");
        // Parquet stores unsigned integers in signed ones of the same bits, and the
        // logical type tells the reader.
        match (self, column.untyped()) {
            (Self::F64(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(&values[rows], None, None)?
            }
            (Self::F32(values), ColumnWriter::FloatColumnWriter(writer)) => {
                writer.write_batch(&values[rows], None, None)?
            }
            (Self::U64(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                let signed: Vec<i64> = values[rows].iter().map(|x| x.cast_signed()).collect();
                writer.write_batch(&signed, None, None)?
            }
            (Self::U32(values), ColumnWriter::Int32ColumnWriter(writer)) => {
                let signed: Vec<i32> = values[rows].iter().map(|x| x.cast_signed()).collect();
                writer.write_batch(&signed, None, None)?
            }
            (Self::I64(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(&values[rows], None, None)?
            }
            (Self::Str(values), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let bytes: Vec<ByteArray> = values[rows].iter().map(|x| ByteArray::from(x.as_str())).collect();
                writer.write_batch(&bytes, None, None)?
            }
            _ => unreachable!("the writer has the type of the field, made from the same column"),
        };
        column.close()
    }
}

/// Digs out the operating system's error that the library wraps: a full disk has to
/// be told from a bad table.
fn parquet_error(path: &Path, error: ParquetError) -> OutputError {
    let source = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => return OutputError::from_io(path, *io),
            Err(other) => ParquetError::External(other),
        },
        other => other,
    };
    OutputError::Parquet { path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use std::fs;
    use std::io;

    fn sample() -> Table {
        Table::new()
            .column("time_s", Column::F64(vec![0.0, 0.5, f64::MAX]))
            .column("share", Column::F32(vec![0.25, -1.5, f32::MIN]))
            .column("bytes", Column::U64(vec![0, 1, u64::MAX]))
            .column("drops", Column::U32(vec![0, 7, u32::MAX]))
            .column("delta_ns", Column::I64(vec![i64::MIN, 0, i64::MAX]))
            .column("state", Column::Str(vec!["slow start".into(), String::new(), "größer ✓".into()]))
            .meta("seed", "42")
            .meta("scenario", "[link]\nrate = \"10 Mbit/s\"\n")
    }

    /// Reads every column back, by what the file itself says about its types.
    fn read(path: &Path) -> Table {
        let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
        let file = reader.metadata().file_metadata();
        let metadata = file.key_value_metadata().into_iter().flatten();
        let mut table = Table {
            columns: Vec::new(),
            metadata: metadata.map(|entry| (entry.key.clone(), entry.value.clone().unwrap())).collect(),
        };
        for row in reader.get_row_iter(None).unwrap() {
            for (i, (name, field)) in row.unwrap().get_column_iter().enumerate() {
                if table.columns.len() == i {
                    let empty = match field {
                        Field::Double(_) => Column::F64(vec![]),
                        Field::Float(_) => Column::F32(vec![]),
                        Field::ULong(_) => Column::U64(vec![]),
                        Field::UInt(_) => Column::U32(vec![]),
                        Field::Long(_) => Column::I64(vec![]),
                        Field::Str(_) => Column::Str(vec![]),
                        other => panic!("{name} came back as {other:?}"),
                    };
                    table.columns.push((name.clone(), empty));
                }
                match (&mut table.columns[i].1, field) {
                    (Column::F64(values), Field::Double(x)) => values.push(*x),
                    (Column::F32(values), Field::Float(x)) => values.push(*x),
                    (Column::U64(values), Field::ULong(x)) => values.push(*x),
                    (Column::U32(values), Field::UInt(x)) => values.push(*x),
                    (Column::I64(values), Field::Long(x)) => values.push(*x),
                    (Column::Str(values), Field::Str(x)) => values.push(x.clone()),
                    (column, field) => panic!("{name}: {field:?} among {column:?}"),
                }
            }
        }
        table
    }

    #[test]
    fn every_type_and_the_metadata_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.parquet");
        sample().write_parquet(&path).unwrap();
        assert_eq!(read(&path), sample());
    }

    #[test]
    fn nan_comes_back_as_nan() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.parquet");
        let table = Table::new().column("rtt_ms", Column::F64(vec![1.0, f64::NAN]));
        table.write_parquet(&path).unwrap();
        let (_, Column::F64(values)) = &read(&path).columns[0] else { panic!("a column of numbers") };
        assert!(values[0] == 1.0 && values[1].is_nan());
    }

    #[test]
    fn more_rows_than_a_group_come_back_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.parquet");
        let rows = ROWS_PER_GROUP as u32 + 3;
        let table = Table::new().column("packet", Column::U32((0..rows).collect()));
        table.write_parquet(&path).unwrap();
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        assert_eq!(read(&path), table);
    }

    #[test]
    fn equal_tables_give_equal_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        sample().write_parquet(&a).unwrap();
        sample().write_parquet(&b).unwrap();
        assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
        sample().meta("seed", "43").write_parquet(&b).unwrap();
        assert_ne!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
    }

    #[test]
    fn unequal_columns_and_equal_names_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.parquet");
        let unequal = sample().column("window_bytes", Column::U64(vec![1]));
        let message = unequal.write_parquet(&path).unwrap_err().to_string();
        assert!(message.contains("\"window_bytes\" has 1 rows, but \"time_s\" has 3"), "{message}");
        let twice = sample().column("time_s", Column::F64(vec![1.0, 2.0, 3.0]));
        let message = twice.write_parquet(&path).unwrap_err().to_string();
        assert!(message.contains("two columns are named \"time_s\""));
        assert!(!path.exists());
    }

    #[test]
    fn a_full_disk_is_recognised_through_the_library() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let error = sample().encode(Full).unwrap_err();
        let error = parquet_error(Path::new("run.parquet"), error);
        assert!(matches!(error, OutputError::DiskFull { .. }), "{error:?}");
    }

    #[test]
    fn a_table_without_rows_or_columns_is_still_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.parquet");
        Table::new().meta("seed", "1").write_parquet(&path).unwrap();
        assert_eq!(read(&path).metadata, [("seed".to_owned(), "1".to_owned())]);
        let empty = Table::new().column("time_s", Column::F64(vec![]));
        empty.write_parquet(&path).unwrap();
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr();
        assert_eq!(schema.column(0).name(), "time_s");
    }
}
