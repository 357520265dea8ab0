//! Tests of the table of locks.
