//! `Memory`: the counters of /proc/meminfo, in the kernel's units.

use mainstay_api::envelope;
use mainstay_api::os::{MemInfo, Memory, MemoryResponse};
use mainstay_node::memory::MemoryInfo;
use tonic::{Response, Status};

use crate::rpc::blocking;

pub async fn memory() -> Result<Response<MemoryResponse>, Status> {
    let info = blocking("the memory counters", MemoryInfo::read).await?;
    Ok(Response::new(envelope(Memory {
        metadata: None,
        meminfo: Some(meminfo(&info)),
    })))
}

fn meminfo(info: &MemoryInfo) -> MemInfo {
    MemInfo {
        memtotal: info.get("MemTotal"),
        memfree: info.get("MemFree"),
        memavailable: info.get("MemAvailable"),
        buffers: info.get("Buffers"),
        cached: info.get("Cached"),
        swapcached: info.get("SwapCached"),
        active: info.get("Active"),
        inactive: info.get("Inactive"),
        activeanon: info.get("Active(anon)"),
        inactiveanon: info.get("Inactive(anon)"),
        activefile: info.get("Active(file)"),
        inactivefile: info.get("Inactive(file)"),
        unevictable: info.get("Unevictable"),
        mlocked: info.get("Mlocked"),
        swaptotal: info.get("SwapTotal"),
        swapfree: info.get("SwapFree"),
        dirty: info.get("Dirty"),
        writeback: info.get("Writeback"),
        anonpages: info.get("AnonPages"),
        mapped: info.get("Mapped"),
        shmem: info.get("Shmem"),
        slab: info.get("Slab"),
        sreclaimable: info.get("SReclaimable"),
        sunreclaim: info.get("SUnreclaim"),
        kernelstack: info.get("KernelStack"),
        pagetables: info.get("PageTables"),
        nfsunstable: info.get("NFS_Unstable"),
        bounce: info.get("Bounce"),
        writebacktmp: info.get("WritebackTmp"),
        commitlimit: info.get("CommitLimit"),
        committedas: info.get("Committed_AS"),
        vmalloctotal: info.get("VmallocTotal"),
        vmallocused: info.get("VmallocUsed"),
        vmallocchunk: info.get("VmallocChunk"),
        hardwarecorrupted: info.get("HardwareCorrupted"),
        anonhugepages: info.get("AnonHugePages"),
        shmemhugepages: info.get("ShmemHugePages"),
        shmempmdmapped: info.get("ShmemPmdMapped"),
        cmatotal: info.get("CmaTotal"),
        cmafree: info.get("CmaFree"),
        hugepagestotal: info.get("HugePages_Total"),
        hugepagesfree: info.get("HugePages_Free"),
        hugepagesrsvd: info.get("HugePages_Rsvd"),
        hugepagessurp: info.get("HugePages_Surp"),
        hugepagesize: info.get("Hugepagesize"),
        directmap4k: info.get("DirectMap4k"),
        directmap2m: info.get("DirectMap2M"),
        directmap1g: info.get("DirectMap1G"),
    }
}
