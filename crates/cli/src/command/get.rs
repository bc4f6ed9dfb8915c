//! `bathyal get`.

use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_index::{Index, OpenOptions, StoredVectors};
use bathyal_kernels::to_f32;
use bathyal_tier::Control;
use bathyal_vectors::{IdFile, VectorWriter};
use serde::Serialize;

use crate::arguments::GetArguments;

/// Bytes of vectors that are written at once.
const WRITE_BYTES: usize = 64 << 20;

/// One printed vector.
#[derive(Serialize)]
struct PrintedVector {
    id: u32,
    vector: Vec<f32>,
}

/// The output if vectors are printed.
#[derive(Serialize)]
struct PrintOutput {
    index: String,
    element: &'static str,
    dim: usize,
    vectors: Vec<PrintedVector>,
}

/// The output if vectors are written to a file.
#[derive(Serialize)]
struct FileOutput {
    index: String,
    element: &'static str,
    dim: usize,
    vectors: usize,
    output: String,
}

pub(super) fn run(arguments: &GetArguments, console: &Console) -> Result<(), Failure> {
    let mut ids = arguments.ids.clone();
    if let Some(file) = &arguments.file {
        ids.extend_from_slice(IdFile::open(file)?.all_ids());
    }
    let options = OpenOptions {
        memory_bytes: arguments.memory,
        stripe: arguments.parts.stripe.clone(),
        store: arguments.parts.store.options()?,
        ..OpenOptions::default()
    };
    let index = Index::open(&arguments.index, &options)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    match &arguments.output {
        Some(output) => write(&index, &ids, output, control, console),
        None => print(&index, &ids, control, console),
    }
}

fn print(index: &Index, ids: &[u32], control: Control<'_>, console: &Console) -> Result<(), Failure> {
    let StoredVectors { element, dim, bytes } = index.vectors(ids, control)?;
    let row = |(id, row): (&u32, &[u8])| {
        let mut vector = vec![0.0; dim];
        to_f32(element, row, &mut vector);
        PrintedVector { id: *id, vector }
    };
    let vectors: Vec<PrintedVector> =
        ids.iter().zip(bytes.chunks_exact(element.row_bytes(dim))).map(row).collect();
    let line = |row: &PrintedVector| {
        let values: Vec<String> = row.vector.iter().map(f32::to_string).collect();
        format!("{}: {}", row.id, values.join(" "))
    };
    let text = vectors.iter().map(line).collect::<Vec<_>>().join("\n");
    let index = index.path().display().to_string();
    console.answer(&PrintOutput { index, element: element.name(), dim, vectors }, &text)
}

fn write(
    index: &Index,
    ids: &[u32],
    output: &Path,
    control: Control<'_>,
    console: &Console,
) -> Result<(), Failure> {
    let (element, dim) = (index.element(), index.dim());
    let mut writer = VectorWriter::create(output, element, dim)?;
    for chunk in ids.chunks((WRITE_BYTES / element.row_bytes(dim)).max(1)) {
        writer.push_rows(&index.vectors(chunk, control)?.bytes)?;
    }
    writer.finish()?;
    let answer = FileOutput {
        index: index.path().display().to_string(),
        element: element.name(),
        dim,
        vectors: ids.len(),
        output: output.display().to_string(),
    };
    let text =
        format!("{}: {} vectors from {}, {} x {}", answer.output, ids.len(), answer.index, dim, element);
    console.answer(&answer, &text)
}
