//! Files as transactional memory.

use crate::file::Open;
use crate::pool_door::Door;
use crate::{Error, File, Pool, Result};
use region::{
    Error as RegionError, Isolation, Region, Regions, RegionsInfo, Settings, Transaction,
};

impl Pool {
    /// Maps `bytes` bytes of a file from `offset` on, a multiple of 4096, as memory: loads are
    /// plain loads, stores go through a [`Transaction`]. Where the file ends before, zeros are
    /// loaded; a transaction that writes there makes it longer. A file that is not open for
    /// writing is mapped to be read.
    ///
    /// ```
    /// # fn main() -> nearside::Result<()> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let options = nearside::FormatOptions {
    /// #     slices: vec![nearside::SliceSpec::default()], slice_bytes: 32 << 20,
    /// #     process: true, ..nearside::FormatOptions::default() };
    /// # nearside::Pool::format(scratch.path(), &options)?;
    /// # let pool = nearside::Pool::open(scratch.path())?;
    /// let file = pool.create_file("/counters")?;
    /// let region = pool.map(&file, 0, 1 << 20)?;
    /// let mut tx = pool.begin()?;
    /// tx.put(&region, 0, &1u64)?;
    /// tx.put(&region, 4096, &2u64)?;
    /// tx.commit()?; // both, or neither, and durable
    /// assert_eq!(region.get::<u64>(4096)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn map(&self, file: &File, offset: u64, bytes: u64) -> Result<Region> {
        file.check_readable()?;
        let (regions, is_writable) = (self.regions()?, file.flags.write);
        match (&self.door, &file.open) {
            (Door::Owned(_), Open::Here(file)) => {
                Ok(Region::map_as(regions, &file.handle, offset, bytes, is_writable)?)
            }
            (Door::Attached(attached), Open::There(file)) => {
                attached.map(regions, file, (offset, bytes), is_writable)
            }
            _ => Err(RegionError::OtherPool.into()),
        }
    }

    /// Begins a transaction whose reads see what is committed.
    pub fn begin(&self) -> Result<Transaction<&Regions>> {
        Ok(self.regions()?.begin()?)
    }

    /// Begins a transaction.
    pub fn begin_with(&self, isolation: Isolation) -> Result<Transaction<&Regions>> {
        Ok(self.regions()?.begin_with(isolation)?)
    }

    /// Runs `act` in a transaction and commits it; again, while another one was faster. `act` must
    /// have no other effects, and nothing is committed where it fails.
    pub fn transact<T, E: From<Error> + From<RegionError>>(
        &self,
        isolation: Isolation,
        act: impl FnMut(&mut Transaction<&Regions>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.regions()?.transact(isolation, act)
    }

    /// How regions are served from now on: before the first one is mapped. How much memory they
    /// take the service says, where a process is attached on its machine.
    pub fn set_region_settings(&self, settings: &Settings) -> Result<()> {
        if let Door::Owned(owned) = &self.door {
            owned.rule()?;
        }
        let regions = self.new_regions(settings)?;
        match self.regions.set(regions) {
            Ok(()) => Ok(()),
            Err(_) => Err(Error::Files(fs::Error::Invalid("there are regions already"))),
        }
    }

    /// What its regions take; `None`: there were none yet.
    pub fn regions_info(&self) -> Option<RegionsInfo> {
        self.regions.get().map(Regions::info)
    }

    /// Its regions, for who begins transactions that outlive a borrow of the pool.
    pub fn regions(&self) -> Result<&Regions> {
        if let Some(regions) = self.regions.get() {
            // their calls refuse a forked child themselves
            return Ok(regions);
        }
        let made = self.new_regions(&Settings::default())?;
        // of two that begin at once one is kept
        Ok(self.regions.get_or_init(|| made))
    }
    fn new_regions(&self, settings: &Settings) -> Result<Regions> {
        match &self.door {
            Door::Owned(owned) => {
                owned.own()?;
                Ok(Regions::new(&owned.fs, settings)?.for_caller(owned.caller.clone()))
            }
            Door::Attached(attached) => attached.regions(settings),
        }
    }
}
