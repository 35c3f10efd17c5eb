//! Tests of the engines as a whole.
