//! Parsers of untrusted bytes, for fuzzing: how to call each, and valid files from which mutations begin.
//! Checksums are corrected before a file is parsed, so that fuzzing reaches the code behind them.

mod filters;
mod logs;
mod requests;
mod rows;
mod segments;

/// A parser of untrusted bytes.
pub struct Reader {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// Valid files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Parses any bytes; panics if the parser violates an invariant.
    pub read: fn(&[u8]),
}

/// All parsers.
pub const READERS: [Reader; 14] = [
    Reader { name: "collection_log", seeds: logs::seeds, read: logs::log },
    Reader { name: "collection_version", seeds: segments::versions, read: segments::version },
    Reader { name: "deleted_rows", seeds: segments::bitmaps, read: segments::bitmap },
    Reader { name: "segment_manifest", seeds: segments::manifests, read: segments::manifest },
    Reader { name: "id_block", seeds: segments::blocks, read: segments::block },
    Reader { name: "id_fence", seeds: segments::fences, read: segments::fence },
    Reader { name: "segment_columns", seeds: segments::column_files, read: segments::columns },
    Reader { name: "filter_words", seeds: filters::words, read: filters::in_words },
    Reader { name: "filter_json", seeds: filters::values, read: filters::in_json },
    Reader { name: "request_arrow", seeds: requests::streams, read: requests::arrow },
    Reader { name: "request_json", seeds: requests::objects, read: requests::json },
    Reader { name: "json_lines", seeds: rows::lines, read: |bytes| rows::file("rows.jsonl", bytes) },
    Reader { name: "arrow_rows", seeds: rows::arrow, read: |bytes| rows::file("rows.arrow", bytes) },
    Reader { name: "parquet_rows", seeds: rows::parquet, read: |bytes| rows::file("rows.parquet", bytes) },
];

#[cfg(test)]
mod tests;
