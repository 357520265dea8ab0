//! Calls of a kernel that change the file: buffered and direct writes, and truncations.

use super::byte_values::value_of;
use super::kernel::KernelStep;
use super::state::{Call, Change, Counts, Door, FILE_BYTES, Kernel, PAGE_BYTES, Phase, State};

impl Counts {
    /// Changes by the kernel that have a value.
    pub(super) fn changes(&self) -> u8 {
        self.stores + self.writes + self.whole_writes + self.directs
    }
}

impl Kernel {
    fn begin(&mut self, number: usize, change: Change) {
        let value = value_of(Door::Kernel(number), self.counts.changes());
        let mut call = Call {
            change,
            value,
            phase: Phase::Sent,
            is_locking: false,
            is_passed: false,
            is_in_doubt: false,
            versions: [0; FILE_BYTES],
        };
        match change {
            Change::Write(byte) => {
                self.counts.writes += 1;
                call.phase = Phase::Filled;
                let page = &mut self.pages[byte / PAGE_BYTES];
                call.is_locking = !page.is_cached;
                if page.is_cached {
                    page.bytes[byte % PAGE_BYTES] = value;
                }
            }
            Change::WriteWhole(page) => {
                self.counts.whole_writes += 1;
                call.phase = Phase::Filled;
                let page = &mut self.pages[page];
                (page.is_cached, page.bytes) = (true, [value; PAGE_BYTES]);
            }
            Change::Direct(_) => {
                self.counts.directs += 1;
                self.direct = Some(call);
                return;
            }
            Change::Cut(_) => {
                self.counts.cuts += 1;
                call.value = 0;
            }
        }
        self.call = Some(call);
    }
}

impl State {
    pub(super) fn take_call(&mut self, number: usize, step: KernelStep) {
        let kernel = &mut self.kernels[number];
        match step {
            KernelStep::Begin(change) => kernel.begin(number, change),
            KernelStep::Send => {
                let Some(call) = &mut kernel.call else { return };
                call.phase = Phase::Sent;
            }
            KernelStep::EndDirect => {
                let Some(call) = kernel.direct.take() else { return };
                self.change_returns(Door::Kernel(number), call);
            }
            KernelStep::HearAnswer => {
                let Some(call) = kernel.call.take() else { return };
                kernel.size_told = None;
                if let Change::Cut(size) = call.change {
                    let is_new = kernel.size != size;
                    // of a size that the kernel knew already it drops no pages
                    kernel.call = Some(Call { phase: Phase::Cutting { is_cut: false }, ..call });
                    kernel.learns_cut(size);
                    kernel.call = kernel.call.filter(|_| is_new);
                } else {
                    let end = call.change.bytes().end;
                    kernel.size = kernel.size.max(end);
                }
                self.change_returns(Door::Kernel(number), call);
            }
            step => unreachable!("{step:?}"),
        }
    }
}
