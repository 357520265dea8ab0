//! Crash states of the engine, explored.
