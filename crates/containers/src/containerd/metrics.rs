//! Metrics of containerd in their two forms: cgroup v1 (also on hybrid machines) and v2.
//!
//! Only the fields in use are decoded; an unknown form yields no usage.

use prost::Message;
use prost_types::Any;

use crate::container::Usage;

const V1: &str = "io.containerd.cgroups.v1.Metrics";
const V2: &str = "io.containerd.cgroups.v2.Metrics";

pub(super) fn usage(data: &Any) -> Option<Usage> {
    let kind = data.type_url.rsplit('/').next().unwrap_or_default();
    match kind {
        V1 => v1::Metrics::decode(&*data.value).ok().map(Usage::from),
        V2 => v2::Metrics::decode(&*data.value).ok().map(Usage::from),
        _ => None,
    }
}

mod v1 {
    use super::Usage;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Metrics {
        #[prost(message, optional, tag = "3")]
        pub(super) cpu: Option<Cpu>,
        #[prost(message, optional, tag = "4")]
        pub(super) memory: Option<Memory>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Cpu {
        #[prost(message, optional, tag = "1")]
        pub(super) usage: Option<CpuUsage>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct CpuUsage {
        #[prost(uint64, tag = "1")]
        pub(super) total_nanos: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Memory {
        /// Includes child cgroups, as the charge does.
        #[prost(uint64, tag = "30")]
        pub(super) total_inactive_file: u64,
        #[prost(message, optional, tag = "33")]
        pub(super) usage: Option<MemoryEntry>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct MemoryEntry {
        #[prost(uint64, tag = "2")]
        pub(super) usage: u64,
    }

    impl From<Metrics> for Usage {
        fn from(metrics: Metrics) -> Self {
            let memory = metrics.memory.unwrap_or_default();
            let cpu = metrics.cpu.and_then(|cpu| cpu.usage).unwrap_or_default();
            Self::new(
                memory.usage.unwrap_or_default().usage,
                memory.total_inactive_file,
                cpu.total_nanos,
            )
        }
    }
}

mod v2 {
    use super::Usage;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Metrics {
        #[prost(message, optional, tag = "2")]
        pub(super) cpu: Option<Cpu>,
        #[prost(message, optional, tag = "4")]
        pub(super) memory: Option<Memory>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Cpu {
        #[prost(uint64, tag = "1")]
        pub(super) usage_micros: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Memory {
        #[prost(uint64, tag = "13")]
        pub(super) inactive_file: u64,
        #[prost(uint64, tag = "32")]
        pub(super) usage: u64,
    }

    impl From<Metrics> for Usage {
        fn from(metrics: Metrics) -> Self {
            let memory = metrics.memory.unwrap_or_default();
            let micros = metrics.cpu.unwrap_or_default().usage_micros;
            Self::new(
                memory.usage,
                memory.inactive_file,
                micros.saturating_mul(1000),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(kind: &str, value: Vec<u8>) -> Any {
        Any {
            type_url: kind.to_owned(),
            value,
        }
    }

    #[test]
    fn both_forms_yield_working_set_and_nanoseconds() {
        let first = v1::Metrics {
            cpu: Some(v1::Cpu {
                usage: Some(v1::CpuUsage { total_nanos: 77 }),
            }),
            memory: Some(v1::Memory {
                total_inactive_file: 300,
                usage: Some(v1::MemoryEntry { usage: 1000 }),
            }),
        };
        let second = v2::Metrics {
            cpu: Some(v2::Cpu { usage_micros: 77 }),
            memory: Some(v2::Memory {
                inactive_file: 300,
                usage: 1000,
            }),
        };
        let of = |kind: &str, value| usage(&packed(kind, value)).unwrap();
        let (first, second) = (
            of(V1, first.encode_to_vec()),
            of(V2, second.encode_to_vec()),
        );
        assert_eq!((first.memory_bytes, first.cpu_nanos), (700, 77));
        assert_eq!((second.memory_bytes, second.cpu_nanos), (700, 77_000));
        let url = format!("type.googleapis.com/{V2}");
        assert_eq!(usage(&packed(&url, Vec::new())), Some(Usage::default()));
        assert_eq!(usage(&packed("another.Metrics", Vec::new())), None);
    }

    #[test]
    fn field_numbers_are_those_of_containerd() {
        // Memory is field 4; in it 13, whose key is 0x68, and 32, whose key is 0x80 0x02.
        let memory = [0x68, 5, 0x80, 0x02, 9];
        let mut bytes = vec![0x12, 2, 0x08, 3, 0x22, 5];
        bytes.extend(memory);
        let usage = usage(&packed(V2, bytes)).unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (4, 3000));
    }

    proptest! {
        #[test]
        fn garbage_measures_something_or_nothing(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = usage(&packed(V1, bytes.clone()));
            let _ = usage(&packed(V2, bytes));
        }
    }
}
