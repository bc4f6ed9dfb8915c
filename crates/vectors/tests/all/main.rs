//! Files of vectors, conversion, exact neighbours and recall, from outside.

mod convert;
mod groundtruth;
mod recall;
mod vector_files;
