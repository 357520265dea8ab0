//! Tests of files that models include, too, and that therefore hold none of their own.

mod gate;
mod log_lines;
