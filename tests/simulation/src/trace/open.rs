//! File access: the only module of this crate that opens files.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;

use super::{InvalidLines, TraceError, Workload, read_jobs, read_swf};

/// Opens a file. A file whose name ends in `.gz` is decompressed while it is read.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::Open {
        path: path.display().to_string(),
        source,
    })?;
    let file = BufReader::new(file);
    if has_extension(path, "gz") {
        return Ok(Box::new(BufReader::new(MultiGzDecoder::new(file))));
    }
    Ok(Box::new(file))
}

/// Reads a trace in the format that its name shows: SWF for `.swf`, CSV for any other name. Both
/// may be compressed.
pub fn open_jobs(path: &Path, invalid_lines: InvalidLines) -> Result<Workload, TraceError> {
    let uncompressed = match path.file_stem() {
        Some(stem) if has_extension(path, "gz") => Path::new(stem),
        _ => path,
    };
    if has_extension(uncompressed, "swf") {
        return read_swf(open(path)?, invalid_lines);
    }
    read_jobs(open(path)?, invalid_lines)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|actual| actual == extension)
}
