//! CPU and memory of a node that pods do not get: for the system, and for the kubelet with the container runtime.

use super::machine_size::MachineSize;

/// Pods that a node can run unless the document says otherwise.
pub(super) const PODS: u32 = 200;
/// Above this number of pods, the kubelet needs a fixed share on top.
const MANY_PODS: u32 = 110;
/// Memory in MiB is reserved in steps, so that a kernel with a few pages more changes nothing.
const MEMORY_STEP_MIB: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Thousandths of a CPU.
    pub cpu: u32,
    /// MiB.
    pub memory: u64,
}

impl Share {
    /// The format of the kubelet's options.
    pub(super) fn option(self) -> String {
        format!("cpu={}m,memory={}Mi", self.cpu, self.memory)
    }
}

/// The shares of the system and of the kubelet, two to three, on a machine of this size.
///
/// CPU is as the reference product computes it. Memory is a share that falls with the size, the scale of the large clouds.
/// Neither is more than half of the machine.
pub(super) fn reserved(size: MachineSize, pods: u32) -> (Share, Share) {
    let cpu = cpu(size.cpus, pods).min(size.cpus.saturating_mul(500));
    let memory = memory(size.memory / MEMORY_STEP_MIB * MEMORY_STEP_MIB).min(size.memory / 2);
    let system = Share { cpu: cpu * 2 / 5, memory: memory * 2 / 5 };
    (system, Share { cpu: cpu - system.cpu, memory: memory - system.memory })
}

/// 60m for the first CPU, 10m for the second, 5m each for two more, 2.5m for each further one, 400m for many pods; and twice
/// that.
fn cpu(cpus: u32, pods: u32) -> u32 {
    let from = |first: u32, last: u32| cpus.min(last).saturating_sub(first - 1);
    // Doubled from the start, because the unit is a thousandth and one term is half of that.
    let twice = from(1, 1) * 120 + from(2, 2) * 20 + from(3, 4) * 10 + from(5, 4096) * 5;
    twice + if pods > MANY_PODS { 800 } else { 0 }
}

/// A quarter of the first 4 GiB, a fifth of the next 4, a tenth of the next 8, 6 % up to 128, 2 % of the rest.
fn memory(total: u64) -> u64 {
    let scale = [(4, 25), (8, 20), (16, 10), (128, 6), (u64::MAX >> 20, 2)];
    let mut below = 0;
    let mut sum = 0;
    for (end, percent) in scale {
        let end = end * 1024;
        sum += total.min(end).saturating_sub(below) * percent;
        below = end;
    }
    sum / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cpu_is_that_of_the_reference_product() {
        let table = [(4, 384, 576), (8, 392, 588), (16, 408, 612), (32, 440, 660), (64, 504, 756)];
        for (cpus, system, kubelet) in table {
            let (one, other) = reserved(MachineSize { cpus, memory: 1 << 16 }, PODS);
            assert_eq!((one.cpu, other.cpu), (system, kubelet), "{cpus} CPUs");
        }
        assert_eq!(reserved(MachineSize { cpus: 4, memory: 1 << 16 }, 110).1.cpu, 96, "few pods");
    }

    #[test]
    fn memory_is_a_share_that_falls_with_the_size() {
        let table = [
            (2048, 204, 308),
            (8192, 737, 1106),
            (32 * 1024, 1458, 2187),
            (64 * 1024, 2244, 3367),
            (64 * 1024 + 100, 2244, 3367),
            (512 * 1024, 6963, 10445),
        ];
        for (memory, system, kubelet) in table {
            let (one, other) = reserved(MachineSize { cpus: 16, memory }, PODS);
            assert_eq!((one.memory, other.memory), (system, kubelet), "{memory} MiB");
        }
    }

    proptest! {
        #[test]
        fn half_of_every_machine_is_left_and_larger_ones_reserve_no_less(
            cpus in 1_u32..2048,
            memory in 256_u64..(1 << 24),
        ) {
            let sum = |cpus, memory| {
                let (one, other) = reserved(MachineSize { cpus, memory }, PODS);
                (one.cpu + other.cpu, one.memory + other.memory)
            };
            let (cpu, mib) = sum(cpus, memory);
            prop_assert!(cpu <= cpus * 500 && mib <= memory / 2);
            let (more, most) = sum(cpus + 1, memory + 4096);
            prop_assert!(more >= cpu && most >= mib);
        }
    }
}
