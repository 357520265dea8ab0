//! What a durable write may cost at least, and what it costs here.
//!
//! `cargo run --release -p nearside-pmem --example floor [file]` (by default a file of 512 MiB in
//! /dev/shm, made and removed). Every operation is timed many times, the operations taking turns
//! so that a slow spell of the machine hits all of them; printed are medians.

use pmem::{Domain, Mapping, fence};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

const FILE_BYTES: u64 = 512 << 20;
const ROUNDS: usize = 401;
const BIG_BYTES: usize = 2 << 20;

/// Places to access, in an order that no prefetcher guesses.
struct Places {
    state: u64,
    mask: u64,
}

impl Places {
    fn next(&mut self, unit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // Of a power of two, so that the dice cost nothing beside what they are for.
        self.state & self.mask & !(unit - 1)
    }
}

/// One operation: its name, bytes, and one run of it.
struct Operation<'a> {
    name: &'a str,
    bytes: usize,
    run: Box<dyn FnMut(&mut Places) + 'a>,
    rounds_ns: Vec<f64>,
}

fn main() -> std::io::Result<()> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let path = given.clone().unwrap_or_else(|| {
        PathBuf::from(format!("/dev/shm/nearside-floor-{}", std::process::id()))
    });
    if given.is_none() {
        std::fs::File::create(&path)?.set_len(FILE_BYTES)?;
    }
    let outcome = measure(&path);
    if given.is_none() {
        std::fs::remove_file(&path)?;
    }
    outcome.map_err(std::io::Error::other)
}

fn measure(path: &std::path::Path) -> pmem::Result<()> {
    let mapping = Mapping::open(path, &pmem::MapOptions { process: true, ..Default::default() })?;
    assert_eq!(mapping.domain(), Domain::Process);
    for page in (0..mapping.len()).step_by(BIG_BYTES) {
        fence(mapping.write(page, &vec![1; BIG_BYTES]));
    }
    let bare = Bare::map(path);
    println!("{} bytes, medium {:?}, medians of {ROUNDS} rounds", mapping.len(), mapping.medium());
    let small: Vec<u8> = (0..4096u32).map(|at| (at * 7) as u8).collect();
    let mut small_ones = small_writes(&mapping, &bare, &small);
    small_ones.extend(small_reads(&mapping, &bare, &small));
    report(small_ones, mapping.len(), 64);
    let big: Vec<u8> = (0..BIG_BYTES as u32).map(|at| (at * 7) as u8).collect();
    report(big_operations(&mapping, &bare, &big), mapping.len(), 1);
    Ok(())
}

fn operation<'a>(name: &'a str, bytes: usize, run: impl FnMut(&mut Places) + 'a) -> Operation<'a> {
    Operation { name, bytes, run: Box::new(run), rounds_ns: Vec::new() }
}

fn small_writes<'a>(mapping: &'a Mapping, bare: &'a Bare, data: &'a [u8]) -> Vec<Operation<'a>> {
    vec![
        operation("bare nt copy 4 KiB + fence", 4096, |places| {
            bare.copy_fence(places.next(4096), data);
        }),
        operation("write 4 KiB + fence", 4096, |places| {
            fence(mapping.write(places.next(4096), data));
        }),
        operation("write_crc 4 KiB + fence", 4096, |places| {
            let (in_flight, crc) = mapping.write_crc(places.next(4096), data);
            black_box(crc);
            fence(in_flight);
        }),
        operation("write_crc 4 KiB + write 64 B + fence", 4096, |places| {
            let record = places.next(64);
            let (in_flight, crc) = mapping.write_crc(places.next(4096), data);
            let mut line = [0; 64];
            line[..4].copy_from_slice(&crc.to_le_bytes());
            fence(in_flight.and(mapping.write(record, &line)));
        }),
        operation("the same, 64 B records in sequence", 4096, {
            let mut record = 0;
            move |places| {
                record = (record + 64) % (1 << 20);
                let (in_flight, crc) = mapping.write_crc(places.next(4096), data);
                let mut line = [0; 64];
                line[..4].copy_from_slice(&crc.to_le_bytes());
                fence(in_flight.and(mapping.write(record, &line)));
            }
        }),
        operation("bare nt copy 64 B + fence", 64, |places| {
            bare.copy_fence(places.next(64), &data[..64]);
        }),
        operation("write 64 B + fence", 64, |places| {
            fence(mapping.write(places.next(64), &data[..64]));
        }),
        operation("write 100 B + fence", 100, |places| {
            fence(mapping.write(places.next(64), &data[..100]));
        }),
        operation("store 8 B + flush + fence", 8, |places| {
            let at = places.next(64);
            fence(mapping.flush(mapping.store_u64(at, 1), at, 8));
        }),
    ]
}

fn small_reads<'a>(mapping: &'a Mapping, bare: &'a Bare, data: &'a [u8]) -> Vec<Operation<'a>> {
    let mut buffers = vec![vec![0u8; 4096]; 3];
    let (mut a, mut b, mut c) = (buffers.remove(0), buffers.remove(0), buffers.remove(0));
    vec![
        operation("bare memcpy out 4 KiB", 4096, move |places| {
            bare.copy_out(places.next(4096), &mut a);
        }),
        operation("read 4 KiB", 4096, move |places| {
            black_box(mapping.read(places.next(4096), &mut b).is_ok());
        }),
        operation("read_crc 4 KiB", 4096, move |places| {
            black_box(mapping.read_crc(places.next(4096), &mut c).is_ok());
        }),
        operation("crc 4 KiB in place", 4096, |places| {
            black_box(mapping.crc(places.next(4096), 4096).is_ok());
        }),
        operation("crc32c 4 KiB, in cache", 4096, |_| {
            black_box(pmem::crc32c(0, black_box(data)));
        }),
        operation("crc32c 64 B, in cache", 64, |_| {
            black_box(pmem::crc32c(0, black_box(&data[..64])));
        }),
        operation("crc32c 200 B, in cache", 200, |_| {
            black_box(pmem::crc32c(0, black_box(&data[..200])));
        }),
    ]
}

fn big_operations<'a>(mapping: &'a Mapping, bare: &'a Bare, data: &'a [u8]) -> Vec<Operation<'a>> {
    let unit = BIG_BYTES as u64;
    let (mut a, mut b, mut c) = (vec![0; BIG_BYTES], vec![0; BIG_BYTES], vec![0; BIG_BYTES]);
    vec![
        operation("bare nt copy 2 MiB + fence", BIG_BYTES, move |places| {
            bare.copy_fence(places.next(unit), data);
        }),
        operation("write 2 MiB + fence", BIG_BYTES, move |places| {
            fence(mapping.write(places.next(unit), data));
        }),
        operation("write_crc 2 MiB + fence", BIG_BYTES, move |places| {
            let (in_flight, crc) = mapping.write_crc(places.next(unit), data);
            black_box(crc);
            fence(in_flight);
        }),
        operation("bare memcpy out 2 MiB", BIG_BYTES, move |places| {
            bare.copy_out(places.next(unit), &mut a);
        }),
        operation("read 2 MiB", BIG_BYTES, move |places| {
            black_box(mapping.read(places.next(unit), &mut b).is_ok());
        }),
        operation("read_crc 2 MiB", BIG_BYTES, move |places| {
            black_box(mapping.read_crc(places.next(unit), &mut c).is_ok());
        }),
        operation("crc32c 2 MiB", BIG_BYTES, |_| {
            black_box(pmem::crc32c(0, black_box(data)));
        }),
    ]
}

fn report(mut operations: Vec<Operation<'_>>, end: u64, repeats: usize) {
    let mut places =
        Places { state: 0x9E37_79B9_7F4A_7C15, mask: (end + 1).next_power_of_two() / 2 - 1 };
    for round in 0..ROUNDS {
        let count = operations.len();
        for turn in 0..count {
            // Another one begins each time: nobody always follows the same neighbour.
            let operation = &mut operations[(turn + round * 7) % count];
            let start = Instant::now();
            for _ in 0..repeats {
                (operation.run)(&mut places);
            }
            operation.rounds_ns.push(start.elapsed().as_nanos() as f64 / repeats as f64);
        }
    }
    let floor_ns = operations[0].rounds_ns.clone();
    for operation in &mut operations {
        // Of each round by itself: a slow spell of the machine is in both.
        let mut ratios: Vec<f64> =
            operation.rounds_ns.iter().zip(&floor_ns).map(|(ns, floor)| ns / floor).collect();
        let median_ns = median(&mut operation.rounds_ns);
        println!(
            "{:<40} {median_ns:>10.0} ns {:>6.2} GB/s   {:>5.2} x the bare copy",
            operation.name,
            operation.bytes as f64 / median_ns,
            median(&mut ratios)
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A mapping of the same file without anything around it.
struct Bare {
    base: *mut u8,
}

impl Bare {
    fn map(path: &std::path::Path) -> Bare {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::options().read(true).write(true).open(path);
        let Ok(file) = file else { panic!("{} vanished", path.display()) };
        let len = file.metadata().map_or(0, |metadata| metadata.len()) as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel picks unused addresses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0)
        };
        assert!(base != libc::MAP_FAILED, "cannot map {}", path.display());
        Bare { base: base.cast() }
    }

    #[cfg(target_arch = "x86_64")]
    fn copy_fence(&self, offset: u64, data: &[u8]) {
        use std::arch::asm;
        let to = self.base.wrapping_add(offset as usize);
        let wide = is_x86_feature_detected!("avx512f");
        // SAFETY: the places lie inside the mapping, and data are whole lines.
        unsafe {
            if wide {
                asm!(
                    "2:",
                    "vmovups zmm16, [{from} + {at}]",
                    "vmovntps [{to} + {at}], zmm16",
                    "add {at}, 64",
                    "cmp {at}, {end}",
                    "jb 2b",
                    "sfence",
                    from = in(reg) data.as_ptr(), to = in(reg) to, at = inout(reg) 0usize => _,
                    end = in(reg) data.len(), out("xmm16") _, options(nostack),
                );
            } else {
                asm!(
                    "2:",
                    "movups {a}, [{from} + {at}]",
                    "movntps [{to} + {at}], {a}",
                    "add {at}, 16",
                    "cmp {at}, {end}",
                    "jb 2b",
                    "sfence",
                    from = in(reg) data.as_ptr(), to = in(reg) to, at = inout(reg) 0usize => _,
                    end = in(reg) data.len(), a = out(xmm_reg) _, options(nostack),
                );
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn copy_fence(&self, offset: u64, data: &[u8]) {
        let to = self.base.wrapping_add(offset as usize);
        // SAFETY: the places lie inside the mapping.
        unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    fn copy_out(&self, offset: u64, buffer: &mut [u8]) {
        let from = self.base.wrapping_add(offset as usize);
        // SAFETY: the places lie inside the mapping.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(from, buffer.len()) };
        black_box(buffer);
    }
}
