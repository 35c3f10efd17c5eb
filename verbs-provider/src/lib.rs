//! The drop-in verbs library.
