//! SoftWrAP's scheme, written anew from its description (Giles, Doshi, Varman: "SoftWrAP: A
//! lightweight framework for transactional support of storage class memory", MSST 2015).
//!
//! A transaction's writes go to a redo log in persistent memory, with streaming stores, and to
//! aliases in DRAM, which a hash table finds by the address that they stand for. At its end the log
//! gets an end marker and one fence: then the transaction is durable. When the table or the log is
//! half full, the aliases are copied to the places that they stand for, and the log begins anew.
//!
//! What is simpler here, as a rule in its favour:
//! - a transaction's part of the log goes out at its end, in whole lines, and its marker holds a
//!   checksum of it, so that one fence is enough for both;
//! - the aliases are copied by the caller and not by a second thread with a second table: what
//!   background threads do counts as well;
//! - an address stands for one object, which is written whole and whose length does not change
//!   while it has an alias; theirs are found the same way, by the address of an object;
//! - transactions are one after the other, and none is aborted; nothing recovers.

use crate::error::Result;
use pmem::{InFlight, LINE_BYTES, Mapping};

/// Aliases of one lap of the log, at most.
const ALIASES_MAX: usize = 1 << 16;
/// Where the log's records begin: before them stands which lap it is in.
const LOG_START: u64 = LINE_BYTES as u64;

/// What a place holds, until it is copied there.
#[derive(Clone, Copy, Debug)]
struct Alias {
    home: u64,
    /// Where in `values` its bytes are.
    at: usize,
    len: usize,
}

/// An array in persistent memory with such transactions.
#[derive(Debug)]
pub struct Softwrap {
    home: Mapping,
    log: Mapping,
    log_end: u64,
    lap: u64,
    aliases: Vec<Alias>,
    /// The aliases by the hash of their places, plus one; 0: none. Half of it is free.
    table: Vec<u32>,
    values: Vec<u8>,
    /// What the transaction puts into the log.
    record: Vec<u8>,
}

impl Softwrap {
    /// On an array, with a log.
    pub fn new(home: Mapping, log: Mapping) -> Softwrap {
        let (aliases, table) = (Vec::with_capacity(ALIASES_MAX), vec![0; 2 * ALIASES_MAX]);
        let (values, record) = (Vec::new(), Vec::new());
        Softwrap { home, log, log_end: LOG_START, lap: 1, aliases, table, values, record }
    }

    /// Writes an object as a part of the transaction.
    pub fn write(&mut self, home: u64, data: &[u8]) {
        self.record.extend_from_slice(&home.to_le_bytes());
        self.record.extend_from_slice(&(data.len() as u64).to_le_bytes());
        self.record.extend_from_slice(data);
        let slot = self.slot(home);
        if let Some(alias) = self.alias(slot) {
            debug_assert_eq!(alias.len, data.len(), "an object keeps its length");
            self.values[alias.at..alias.at + data.len()].copy_from_slice(data);
            return;
        }
        self.aliases.push(Alias { home, at: self.values.len(), len: data.len() });
        self.table[slot] = self.aliases.len() as u32;
        self.values.extend_from_slice(data);
    }

    /// Ends the transaction: it is durable when this returns.
    pub fn commit(&mut self) -> Result<()> {
        let lap = self.lap as u32;
        let sum = pmem::crc32c(lap, &self.record);
        let whole = (self.record.len() + 8).next_multiple_of(LINE_BYTES);
        self.record.resize(whole - 8, 0);
        self.record.extend_from_slice(&lap.to_le_bytes());
        self.record.extend_from_slice(&sum.to_le_bytes());
        let _ = pmem::fence(self.log.write(self.log_end, &self.record));
        self.log_end += whole as u64;
        self.record.clear();
        // a transaction is never longer than half of either
        if self.aliases.len() > ALIASES_MAX / 2 || self.log_end > self.log.len() / 2 {
            self.retrieve();
        }
        Ok(())
    }

    /// Reads an object; what was written last, also before its transaction has ended.
    #[cfg(test)] // the benchmark only writes
    pub fn read(&self, home: u64, buffer: &mut [u8]) -> Result<()> {
        match self.alias(self.slot(home)) {
            Some(alias) => buffer.copy_from_slice(&self.values[alias.at..alias.at + alias.len]),
            None => self.home.read(home, buffer)?,
        }
        Ok(())
    }

    /// Copies all aliases to their places, and begins the log anew.
    pub fn retrieve(&mut self) {
        let copy = |alias: &Alias| {
            self.home.write(alias.home, &self.values[alias.at..alias.at + alias.len])
        };
        let copied = self.aliases.iter().map(copy).fold(InFlight::none(), InFlight::and);
        let _ = pmem::fence(copied);
        // records of earlier laps are none any more
        self.lap += 1;
        let _ = pmem::fence(self.log.write(0, &self.lap.to_le_bytes()));
        self.log_end = LOG_START;
        self.aliases.clear();
        self.values.clear();
        self.table.fill(0);
    }

    /// Where in the table the alias of a place is, or would be.
    fn slot(&self, home: u64) -> usize {
        let bits = self.table.len().trailing_zeros();
        let mut slot = (home.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize;
        while self.alias(slot).is_some_and(|alias| alias.home != home) {
            slot = (slot + 1) % self.table.len();
        }
        slot
    }

    fn alias(&self, slot: usize) -> Option<Alias> {
        let number = self.table[slot] as usize;
        number.checked_sub(1).map(|index| self.aliases[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use pmem::Domain;

    const OBJECT: u64 = 64;

    fn with(pages: usize, log_bytes: usize) -> Softwrap {
        let memory = |bytes| Mapping::memory(bytes, Domain::CpuFlush).unwrap();
        Softwrap::new(memory(pages * 4096), memory(log_bytes))
    }

    /// Transactions of up to three objects; checks some after each, and all at the end.
    fn reads_back(mut array: Softwrap, objects: u64, count: u64) {
        let mut dice = Dice::new(7);
        let mut model = vec![0u8; objects as usize];
        for number in 0..count {
            for _ in 0..=dice.below(3) {
                let object = dice.below(objects);
                model[object as usize] = number as u8 | 1;
                array.write(object * OBJECT, &[number as u8 | 1; OBJECT as usize]);
            }
            array.commit().unwrap();
            let object = dice.below(objects);
            assert_eq!(read(&array, object), model[object as usize], "after {number}");
        }
        assert!(array.lap > 2, "it began its log anew");
        array.retrieve();
        for object in 0..objects {
            assert_eq!(read(&array, object), model[object as usize]);
        }
    }

    fn read(array: &Softwrap, object: u64) -> u8 {
        let mut buffer = [0; OBJECT as usize];
        array.read(object * OBJECT, &mut buffer).unwrap();
        assert!(buffer.iter().all(|byte| *byte == buffer[0]), "an object is whole");
        buffer[0]
    }

    #[test]
    fn what_was_committed_reads_back_over_many_laps_of_the_log() {
        reads_back(with(8, 64 << 10), 512, 5_000);
    }

    #[test]
    fn the_same_where_the_table_fills_first() {
        reads_back(with(2048, 64 << 20), 131_072, 60_000);
    }

    #[test]
    fn a_durable_transaction_is_in_the_log_before_it_is_at_home() {
        let mut array = with(1, 64 << 10);
        array.write(0, &[9; 8]);
        array.commit().unwrap();
        let (home, log) = (array.home.copy_image(), array.log.copy_image());
        assert!(home.iter().all(|byte| *byte == 0));
        assert!(log.windows(8).any(|bytes| bytes == [9; 8]));
        array.retrieve();
        assert_eq!(array.home.copy_image()[..8], [9; 8]);
    }
}
