//! Where the bytes of files are, and what accesses from elsewhere have lost.

use placement::{DataRule, Heat};

use crate::random::Random;
use crate::system::Layout;
use crate::workload::{Made, Workload};

/// Where a layout says.
const AS_LAID: u32 = u32::MAX;

/// Some bytes of a call, on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The node,
    pub node: u32,
    /// how many,
    pub bytes: u64,
    /// and of what they are a part: that lies on one node, and moves as a whole.
    pub unit: usize,
}

/// The files of threads that do the same.
#[derive(Clone, Debug)]
struct Set {
    layout: Layout,
    /// The first one among all.
    first: usize,
    /// The first unit of the first one among all.
    first_unit: usize,
    lengths: Lengths,
}

/// How long files are.
#[derive(Clone, Debug)]
enum Lengths {
    /// All have so many units, and bytes.
    Same(usize, u64),
    /// Each has so many bytes, and begins with this unit of theirs.
    Own(Vec<(u64, usize)>),
}

impl Lengths {
    fn of(workload: &Workload, unit_bytes: u64) -> Lengths {
        let units = |bytes: u64| bytes.div_ceil(unit_bytes) as usize;
        let Some(trace) = &workload.trace else {
            return Lengths::Same(units(workload.file_bytes), workload.file_bytes);
        };
        let mut next = 0;
        let own = trace.files.iter().map(|file| {
            let first = next;
            next += units(file.bytes);
            (file.bytes, first)
        });
        Lengths::Own(own.collect())
    }

    /// Units of so many files.
    fn units(&self, files: u32, unit_bytes: u64) -> usize {
        match self {
            Lengths::Same(units, _) => units * files as usize,
            Lengths::Own(all) => {
                all.last().map_or(0, |(bytes, first)| first + bytes.div_ceil(unit_bytes) as usize)
            }
        }
    }

    /// The first unit of a file.
    fn first(&self, file: u32) -> usize {
        match self {
            Lengths::Same(units, _) => file as usize * units,
            Lengths::Own(all) => all.get(file as usize).map_or(0, |own| own.1),
        }
    }

    /// Bytes of a file.
    fn bytes(&self, file: u32) -> u64 {
        match self {
            Lengths::Same(_, bytes) => *bytes,
            Lengths::Own(all) => all.get(file as usize).map_or(0, |own| own.0),
        }
    }

    /// The file of a unit.
    fn file(&self, unit: usize) -> u32 {
        match self {
            Lengths::Same(units, _) => (unit / units) as u32,
            // of those that begin there, all but the last one are empty
            Lengths::Own(all) => all.partition_point(|own| own.1 <= unit).saturating_sub(1) as u32,
        }
    }
}

/// All files.
#[derive(Clone, Debug)]
pub struct Files {
    nodes: u32,
    unit_bytes: u64,
    sets: Vec<Set>,
    makers: Vec<u32>,
    rule: Option<DataRule>,
    /// Where units were moved to, and what is known of them; nothing where no data moves.
    moved: Vec<u32>,
    heat: Vec<Heat>,
    /// How often they were written to: a copy from before is none.
    writes: Vec<u32>,
}

impl Files {
    /// Those of these threads, on a machine of so many nodes with so many CPUs each. Units of so
    /// many bytes move, where stripes are no units.
    pub fn new(
        (layout, unit_bytes, rule): (Layout, u64, Option<DataRule>),
        (nodes, cpus): (u32, u32),
        workloads: &[&Workload],
        random: &mut Random,
    ) -> Files {
        let unit_bytes = match layout {
            Layout::Stripe(bytes) | Layout::Auto(bytes) => bytes,
            Layout::One | Layout::Near => unit_bytes,
        };
        let (mut sets, mut makers, mut first_unit) = (Vec::new(), Vec::new(), 0);
        for workload in workloads {
            let files = workload.all_files();
            let layout = if workload.is_bare { Layout::Near } else { layout };
            let (first, lengths) = (makers.len(), Lengths::of(workload, unit_bytes));
            let units = lengths.units(files, unit_bytes);
            sets.push(Set { layout, first, first_unit, lengths });
            first_unit += units;
            for file in 0..files {
                let user = workload.node(file % workload.threads, nodes, cpus);
                let traced = workload.trace.as_ref().and_then(|it| it.files.get(file as usize));
                if let Some(node) = traced.and_then(|it| it.node) {
                    makers.push(node % nodes);
                    continue;
                }
                makers.push(match workload.made {
                    Made::There => user,
                    Made::Beside => (user + 1) % nodes,
                    Made::On(node) => node % nodes,
                    Made::Partly(node, percent) => match file * 61 % 100 < percent {
                        true => node % nodes,
                        false => user,
                    },
                    Made::Anywhere => (random.draw() % u64::from(nodes)) as u32,
                });
            }
        }
        let known = if rule.is_some() { first_unit } else { 0 };
        let (moved, heat) = (vec![AS_LAID; known], vec![Heat::default(); known]);
        let writes = vec![0; known];
        Files { nodes, unit_bytes, sets, makers, rule, moved, heat, writes }
    }

    /// Whether data moves at all.
    pub fn rule(&self) -> Option<&DataRule> {
        self.rule.as_ref()
    }

    /// The parts of a call, in the order in which they come in the file.
    pub fn split(&self, set: usize, file: u32, (mut at, bytes): (u64, u64), out: &mut Vec<Part>) {
        let (set, end) = (&self.sets[set], at + bytes);
        while at < end {
            let unit = at / self.unit_bytes;
            let next = (unit + 1).saturating_mul(self.unit_bytes).min(end);
            let node = self.node(set, file, unit);
            out.push(Part {
                node,
                bytes: next - at,
                unit: set.first_unit + set.lengths.first(file) + unit as usize,
            });
            at = next;
        }
    }

    fn node(&self, set: &Set, file: u32, unit: u64) -> u32 {
        let nodes = u64::from(self.nodes);
        if !self.moved.is_empty() {
            let moved = self.moved[set.first_unit + set.lengths.first(file) + unit as usize];
            if moved != AS_LAID {
                return moved;
            }
        }
        let maker = || u64::from(self.makers[set.first + file as usize]);
        (match set.layout {
            Layout::One => 0,
            Layout::Near => maker(),
            Layout::Stripe(_) => (u64::from(file) + unit) % nodes,
            Layout::Auto(_) => (maker() + unit) % nodes,
        }) as u32
    }

    /// Where bytes of a log go that a thread of this node writes.
    pub fn log(&self, set: usize, node: u32, written: u64) -> u32 {
        match self.sets[set].layout {
            Layout::One => 0,
            Layout::Near | Layout::Auto(_) => node,
            Layout::Stripe(bytes) => (written / bytes % u64::from(self.nodes)) as u32,
        }
    }

    /// A file is made anew, on this node.
    pub fn make(&mut self, set: usize, file: u32, node: u32) {
        let set = &self.sets[set];
        self.makers[set.first + file as usize] = node;
        if !self.moved.is_empty() {
            let first = set.first_unit + set.lengths.first(file);
            let units = set.lengths.bytes(file).div_ceil(self.unit_bytes) as usize;
            for unit in first..first + units {
                self.moved[unit] = AS_LAID;
                self.heat[unit] = Heat::default();
                self.writes[unit] += 1;
            }
        }
    }

    /// What is known of a unit.
    pub fn heat(&mut self, unit: usize) -> &mut Heat {
        &mut self.heat[unit]
    }

    /// It is written to.
    pub fn written(&mut self, unit: usize) {
        self.writes[unit] += 1;
        if let Some(rule) = &self.rule {
            self.heat[unit].written(rule);
        }
    }

    /// How often it was written to.
    pub fn writes(&self, unit: usize) -> u32 {
        self.writes[unit]
    }

    /// It is on this node from now on.
    pub fn moved(&mut self, unit: usize, node: u32) {
        self.moved[unit] = node;
    }

    /// Where a unit is, and its bytes.
    pub fn unit(&self, unit: usize) -> (u32, u64) {
        let of = self.sets.iter().rev().find(|set| set.first_unit <= unit);
        let Some(set) = of else { return (0, 0) };
        let unit = unit - set.first_unit;
        let file = set.lengths.file(unit);
        let index = (unit - set.lengths.first(file)) as u64;
        let from = index * self.unit_bytes;
        (self.node(set, file, index), self.unit_bytes.min(set.lengths.bytes(file) - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::Kind;

    fn files(layout: Layout, made: Made, rule: Option<DataRule>) -> Files {
        let workload = Workload { file_bytes: 1000, made, ..Workload::fio(Kind::Read, 10, 4) };
        let spread = Workload { is_spread: true, ..workload };
        Files::new((layout, 300, rule), (4, 2), &[&spread, &spread], &mut Random::new(1))
    }

    fn nodes(files: &Files, set: usize, file: u32) -> Vec<(u32, u64)> {
        let mut parts = Vec::new();
        files.split(set, file, (50, 900), &mut parts);
        parts.iter().map(|part| (part.node, part.bytes)).collect()
    }

    #[test]
    fn bytes_are_where_the_layout_says() {
        let there = |layout| nodes(&files(layout, Made::There, None), 1, 2);
        assert_eq!(there(Layout::One), [(0, 250), (0, 300), (0, 300), (0, 50)]);
        assert_eq!(there(Layout::Near), [(2, 250), (2, 300), (2, 300), (2, 50)]);
        assert_eq!(there(Layout::Auto(500)), [(2, 450), (3, 450)]);
        assert_eq!(there(Layout::Stripe(400)), [(2, 350), (3, 400), (0, 150)]);
        let made = |made| nodes(&files(Layout::Near, made, None), 0, 3)[0].0;
        assert_eq!((made(Made::Beside), made(Made::On(1)), made(Made::There)), (0, 1, 3));
    }

    #[test]
    fn a_unit_that_moved_is_there_until_its_file_is_made_anew() {
        let mut files = files(Layout::Near, Made::There, Some(DataRule::weighs(1e9)));
        let mut parts = Vec::new();
        files.split(1, 2, (650, 10), &mut parts);
        let unit = parts[0].unit;
        assert_eq!(files.unit(unit), (2, 300));
        files.moved(unit, 1);
        assert_eq!(files.unit(unit), (1, 300));
        assert_eq!(nodes(&files, 1, 2), [(2, 250), (2, 300), (1, 300), (2, 50)]);
        assert_eq!((nodes(&files, 1, 1)[2].0, nodes(&files, 0, 2)[2].0), (1, 2));
        assert_eq!(files.unit(unit + 1), (2, 100));
        files.make(1, 2, 3);
        assert_eq!(nodes(&files, 1, 2), [(3, 250), (3, 300), (3, 300), (3, 50)]);
    }
}
