use super::*;
use parking_lot::Mutex;

/// A device in memory.
#[derive(Debug)]
struct Memory(Mutex<Vec<u8>>);

impl Memory {
    fn of(bytes: usize) -> Arc<dyn Device> {
        Arc::new(Memory(Mutex::new(vec![0; bytes])))
    }
}

impl Device for Memory {
    fn bytes(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        let mut memory = self.0.lock();
        for transfer in transfers {
            match transfer {
                Transfer::Read(block, bytes) => {
                    let at = (*block * BLOCK_BYTES) as usize;
                    bytes.copy_from_slice(&memory[at..at + bytes.len()]);
                }
                Transfer::Write(block, bytes) => {
                    let at = (*block * BLOCK_BYTES) as usize;
                    memory[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self) -> String {
        "memory".to_owned()
    }
}

fn identity(index: usize) -> [u8; 16] {
    [index as u8 + 1; 16]
}

fn devices(count: usize) -> Vec<Arc<dyn Device>> {
    (0..count).map(|_| Memory::of(2 << 20)).collect()
}

fn made(count: usize) -> (Table, Vec<Arc<dyn Device>>) {
    let devices = devices(count);
    let table = Table::new([9; 16], &devices, &identity).unwrap();
    table.write_headers(&devices).unwrap();
    (table, devices)
}

fn refused(table: &Table, found: &[Arc<dyn Device>]) -> String {
    table.join(found).unwrap_err().to_string()
}

#[test]
fn the_table_comes_back() {
    for count in [1, 2, BlockAddr::DEVICES_MAX] {
        let (table, _) = made(count);
        assert_eq!(Table::decode(&table.encode(), &[9; 16]), Some(table.clone()));
        assert_eq!(Table::decode(&table.encode(), &[8; 16]), None, "of another pool");
    }
}

#[test]
fn every_flipped_bit_of_the_table_is_refused() {
    let (table, _) = made(3);
    let good = table.encode();
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // one bit of the checksum itself may be lost
        let found = Table::decode(&bytes, &[9; 16]);
        assert!(found.is_none() || found.as_ref() == Some(&table), "bit {bit}");
    }
}

#[test]
fn devices_are_put_in_their_order() {
    let (table, mut devices) = made(3);
    devices.reverse();
    let joined = table.join(&devices).unwrap();
    let uuids: Vec<[u8; 16]> = joined.iter().map(|it| it.uuid).collect();
    assert_eq!(uuids, [identity(0), identity(1), identity(2)]);
    let blocks = (2 << 20) / BLOCK_BYTES;
    assert!(joined.iter().all(|it| it.space.blocks() == blocks - DEVICE_BLOCK_FIRST));
}

#[test]
fn what_is_missing_foreign_twice_or_cut_is_refused() {
    let (table, all) = made(2);
    assert!(refused(&table, &all[..1]).contains("device 1 of the capacity tier"));
    assert!(refused(&table, &[all[0].clone(), all[0].clone()]).contains("twice"));
    assert!(refused(&table, &devices(2)).contains("is no device of a capacity tier"));

    let others = devices(2);
    Table::new([7; 16], &others, &identity).unwrap().write_headers(&others).unwrap();
    assert!(refused(&table, &others).contains("belongs to another pool"));

    let (short, larger) = (Memory::of(1 << 20), Memory::of(2 << 20));
    let mut header = [0; BLOCK_BYTES as usize];
    all[0].transfer(&mut [Transfer::Read(0, &mut header)]).unwrap();
    short.transfer(&mut [Transfer::Write(0, &header)]).unwrap();
    assert!(refused(&table, &[short, all[1].clone()]).contains("smaller"));

    header[300] ^= 1;
    larger.transfer(&mut [Transfer::Write(0, &header)]).unwrap();
    assert!(refused(&table, &[larger, all[1].clone()]).contains("header is damaged"));
}

#[test]
fn a_device_that_is_too_small_is_no_device() {
    let small = vec![Memory::of(4096)];
    let error = Table::new([9; 16], &small, &identity).unwrap_err().to_string();
    assert!(error.contains("at least"), "{error}");
}
