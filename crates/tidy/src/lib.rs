//! The house style, as far as a machine can check it. Run by `cargo test -p bathyal-tidy`.
//!
//! * [`tree`]: the files of the repository that git does not ignore.
//! * [`text`]: lengths of files, banned words, paths of build machines, white space.
//! * [`functions`]: lengths of functions.
//! * [`words`]: the first words of doc comments, and the lengths of lines.
//! * [`imports`]: circles of imports between folders, and within one.
//! * [`links`]: targets of links and of paths in the documentation.
//! * [`licences`]: the licence of every dependency against the allow list in `deny.toml`.
//!
//! Each check returns its complaints as sentences that begin with `file:line:`.

pub mod functions;
pub mod imports;
pub mod licences;
pub mod links;
pub mod text;
pub mod tree;
pub mod words;
