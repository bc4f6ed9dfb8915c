//! Tests of the public interface: files of vectors, conversion, exact neighbours and recall.

mod convert;
mod groundtruth;
mod recall;
mod vector_files;
