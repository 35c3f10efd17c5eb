//! The `adverb` command.
fn main() {}
