//! Notices to kernels, the calls that wait for them, and a server that is killed.

use super::bounds::Bounds;
use super::fault::Fault;
use super::state::{
    Door, GivenPage, Invalidation, KERNELS, PAGE_BYTES, PAGES, Phase, Read, State, Waits, WriteBack,
};

impl State {
    /// Of a call that a killed server has made: the notices of all pages, but its own kernel's.
    pub(super) fn all_waits(&self, door: Door, bounds: &Bounds) -> Waits {
        let pages = (0..KERNELS * PAGES).filter(|it| {
            let (kernel, page) = (it / PAGES, it % PAGES);
            door != Door::Kernel(kernel) && self.given[kernel][page].is_owed
        });
        let next = pages.fold(0, |all, it| all | 1 << it);
        let sent = (0..KERNELS).filter(|kernel| door != Door::Kernel(*kernel));
        let sent = sent.filter_map(|kernel| {
            let page = self.kernels[kernel].invalidation.page()?;
            Some(1 << (kernel * PAGES + page))
        });
        let sent = sent.fold(0, |all, it: u8| all | it);
        match bounds.has(Fault::ReturnsEarly) {
            true => Waits::default(),
            false => Waits { next, sent, ..Waits::default() },
        }
    }

    pub(super) fn notify(&mut self, kernel: usize, page: usize) {
        self.each_waits(|waits| {
            let bit = 1 << (kernel * PAGES + page);
            waits.sent |= waits.next & bit;
            waits.next &= !bit;
        });
        let given = &mut self.given[kernel][page];
        (given.is_owed, given.is_touched, given.is_noticed) = (false, false, true);
        self.kernels[kernel].invalidation = Invalidation::Waiting(page);
        self.kernels[kernel].size_told = None;
        let versions = self.versions();
        self.noted[kernel] = std::array::from_fn(|at| versions[page * PAGE_BYTES + at]);
    }

    pub(super) fn hear_notice(&mut self, kernel: usize, bounds: &Bounds) {
        let Some(page) = self.kernels[kernel].invalidation.page() else { return };
        self.kernels[kernel].invalidation = Invalidation::None;
        self.each_waits(|waits| waits.sent &= !(1 << (kernel * PAGES + page)));
        let given = &mut self.given[kernel][page];
        if !given.is_touched || bounds.has(Fault::OldNoticeEndsBase) {
            *given = GivenPage {
                is_noticed: given.is_noticed,
                is_owed: given.is_owed,
                ..GivenPage::default()
            };
        }
        for at in 0..PAGE_BYTES {
            let floor = &mut self.floors[kernel][page * PAGE_BYTES + at];
            *floor = (*floor).max(self.noted[kernel][at]);
        }
        self.noted[kernel] = [0; PAGE_BYTES];
    }

    /// Of each call that waits the notices that it waits for.
    pub(super) fn each_waits(&mut self, change: impl Fn(&mut Waits)) {
        let kernels = self.kernels.iter_mut();
        let calls = kernels.flat_map(|kernel| [&mut kernel.call, &mut kernel.direct]);
        for call in calls.chain([&mut self.library]).flatten() {
            if let Phase::Waits(waits) | Phase::Kept(waits) | Phase::Changed(waits) =
                &mut call.phase
            {
                change(waits);
            }
        }
    }

    /// The next server knows the bases, which lie in memory that outlives the server. It takes all
    /// pages as given and owes a notice of each.
    pub(super) fn kill(&mut self, bounds: &Bounds) {
        self.kills += 1;
        self.library = None;
        // those that no kernel can have are left out: there would be notices of them, and no more
        let can_have = |kernel: usize, page: usize| {
            let may = &bounds.kernels[kernel];
            (may.reads.at | may.whole_writes.at) >> page & 1 == 1
        };
        for (kernel, page) in (0..KERNELS * PAGES).map(|it| (it / PAGES, it % PAGES)) {
            if !can_have(kernel, page) {
                continue;
            }
            let given = &mut self.given[kernel][page];
            if bounds.has(Fault::BasesLost) {
                given.base = None;
            }
            let is_known = given.base.is_some() || !bounds.has(Fault::MarksLost);
            (given.is_given, given.is_touched) = (is_known, true);
            given.is_owed = !bounds.has(Fault::NoticesLost);
            let is_doubted = !bounds.has(Fault::DoubtLost);
            (given.is_noticed, given.is_in_doubt) = (is_doubted, is_doubted);
        }
        for (kernel, page) in (0..KERNELS * PAGES).map(|it| (it / PAGES, it % PAGES)) {
            let it = &mut self.kernels[kernel].pages[page];
            if let Read::Marked | Read::Loaded(_) | Read::Beside | Read::ReadBeside(..) = it.read {
                it.read = Read::Sent { is_behind_write: false };
            }
            let WriteBack::Half(snapshot) = it.write_back else { continue };
            let is_stored = !bounds.has(Fault::BaseBeforeStore);
            it.write_back = WriteBack::Sent { snapshot, is_stored };
            if !is_stored {
                self.note_write_back(kernel, page, snapshot, bounds);
            }
        }
        for kernel in 0..KERNELS {
            let own = Door::Kernel(kernel);
            let (mut call_waits, direct_waits) =
                (self.all_waits(own, bounds), self.all_waits(Door::Library, bounds));
            if let Some(call) = self.kernels[kernel].call {
                call_waits.next |= self.own_waits(kernel, &call, bounds);
            }
            let it = &mut self.kernels[kernel];
            for (call, waits) in [(&mut it.call, call_waits), (&mut it.direct, direct_waits)] {
                let Some(call) = call else { continue };
                call.phase = match call.phase {
                    Phase::Waits(_) => Phase::Waits(waits),
                    Phase::Kept(_) => Phase::Sent,
                    Phase::Changed(_) => Phase::SentAgain,
                    phase => phase,
                };
            }
        }
    }
}

/// Of all notices those to this kernel.
pub(super) fn notices_to(kernel: usize) -> u8 {
    ((1 << PAGES) - 1) << (kernel * PAGES)
}
