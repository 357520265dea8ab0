//! The rows, by name.

mod append;
mod copies;
mod copy;
mod delegate;
mod emulated;
mod first_touch;
mod fuse;
mod fuse_names;
mod latency;
mod memory;
mod memory_settings;
mod migrate;
mod mirrors;
mod namespace;
mod open;
mod overwrite;
mod pair;
mod placement;
mod read;
mod region_tier;
mod regions;
mod sync;
mod tier_write;
mod wear;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::row::Row;
pub use memory::status_bytes;

/// Measures one row.
pub type Measure = fn(&Options) -> Result<Row>;

/// All rows in the order in which they are measured.
const ROWS: &[(&str, Measure)] = &[
    ("sparse_1t", memory::sparse_1t),
    ("dram_per_file", memory::dram_per_file),
    ("tier_cache_memory", memory_settings::tier_cache_memory),
    ("region_memory", memory_settings::region_memory),
    ("overwrite_4k", overwrite::overwrite_4k),
    ("overwrite_2m", overwrite::overwrite_2m),
    ("read_4k", read::read_4k),
    ("read_2m", read::read_2m),
    ("append_4k", append::append_4k),
    ("overwrite_64b", overwrite::overwrite_64b),
    ("create_unlink", namespace::create_unlink),
    ("two_writers", pair::two_writers),
    ("two_readers", pair::two_readers),
    ("overwrite_4k_p999", latency::overwrite_4k_p999),
    ("write_amplification_4k", wear::write_amplification_4k),
    ("coalesce_64b", wear::coalesce_64b),
    ("sync_4k", sync::sync_4k),
    ("sync_4k_16", sync::sync_4k_16),
    ("open_1m_files", open::open_1m_files),
    ("recovery_full_log", open::recovery_full_log),
    ("page_copies", copies::page_copies),
    ("mirrored_overwrite_4k", mirrors::mirrored_overwrite_4k),
    ("region_commit_64b", regions::region_commit_64b),
    ("region_commit_4k", regions::region_commit_4k),
    ("region_or_file_64b", regions::region_or_file_64b),
    ("region_load_8b", regions::region_load_8b),
    ("region_first_touch_4k", first_touch::region_first_touch_4k),
    ("region_prefetched", first_touch::region_prefetched),
    ("region_from_tier", first_touch::region_from_tier),
    ("region_rewrites_16", region_tier::region_rewrites_16),
    ("tier_write_1m", tier_write::tier_write_1m),
    ("delegated_write_2m", delegate::delegated_write_2m),
    ("delegated_write_64k", delegate::delegated_write_64k),
    ("delegated_read_2m", delegate::delegated_read_2m),
    ("workers_on_one_node", delegate::workers_on_one_node),
    ("range_lock", pair::range_lock),
    ("placement_decision", placement::placement_decision),
    ("placement_thread", placement::placement_thread),
    ("placement_data", placement::placement_data),
    ("placement_observation", placement::placement_observation),
    ("migrate_extents", migrate::migrate_extents),
    ("migrate_beside", migrate::migrate_beside),
    ("idle_workers", delegate::idle_workers),
    ("emulated_levers", emulated::emulated_levers),
    ("emulated_write_nodes", emulated::emulated_write_nodes),
    ("emulated_read_nodes", emulated::emulated_read_nodes),
    ("emulated_write_crowd", emulated::emulated_write_crowd),
    ("emulated_read_crowd", emulated::emulated_read_crowd),
    ("emulated_write_all", emulated::emulated_write_all),
    ("emulated_read_all", emulated::emulated_read_all),
    ("emulated_stripes", emulated::emulated_stripes),
    ("emulated_blocks_32", emulated::emulated_blocks_32),
    ("emulated_blocks_1", emulated::emulated_blocks_1),
    ("copy_1g_shared", copy::copy_1g_shared),
    ("fuse_read_1m", fuse::fuse_read_1m),
    ("fuse_write_1m", fuse::fuse_write_1m),
    ("fuse_read_4k", fuse::fuse_read_4k),
    ("fuse_write_4k", fuse::fuse_write_4k),
    ("fuse_create", fuse_names::fuse_create),
    ("fuse_stat", fuse_names::fuse_stat),
    ("fuse_rename", fuse_names::fuse_rename),
    ("fuse_unlink", fuse_names::fuse_unlink),
];

/// The names of all rows.
pub fn names() -> Vec<&'static str> {
    ROWS.iter().map(|(name, _)| *name).collect()
}

/// The rows that `options` ask for.
pub fn chosen(options: &Options) -> Result<Vec<(&'static str, Measure)>> {
    memory::grown_bytes()?;
    let Some(only) = &options.only else { return Ok(ROWS.to_vec()) };
    let found: Vec<_> = ROWS.iter().filter(|(name, _)| name == only).copied().collect();
    if found.is_empty() {
        return Err(Error::UnknownRow { name: only.clone(), known: names().join(", ") });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_wrong_usage() {
        let options = Options { only: Some("overwrite_5k".to_owned()), ..Options::default() };
        assert!(chosen(&options).unwrap_err().is_usage());
    }

    #[test]
    fn names_are_there_once() {
        let mut sorted = names();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names().len());
    }
}
