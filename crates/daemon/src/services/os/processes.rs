//! `Processes`: every process of the machine.

use mainstay_api::envelope;
use mainstay_api::os::{Process, ProcessInfo, ProcessesResponse};
use tonic::{Response, Status};

use crate::rpc::blocking;

pub async fn processes() -> Result<Response<ProcessesResponse>, Status> {
    let all = blocking("the processes", mainstay_node::processes::processes).await?;
    let processes = all
        .into_iter()
        .map(|process| ProcessInfo {
            pid: process.pid,
            ppid: process.ppid,
            state: process.state,
            threads: process.threads,
            cpu_time: process.cpu_seconds,
            virtual_memory: process.virtual_bytes,
            resident_memory: process.resident_bytes,
            command: process.command,
            executable: process.executable,
            args: process.args,
            label: process.label,
            uid: process.uid,
            user: process.user,
            start_time: process.started.map(prost_types::Timestamp::from),
            elapsed_time: process.elapsed_seconds,
            read_bytes: process.read_bytes,
            write_bytes: process.write_bytes,
        })
        .collect();
    Ok(Response::new(envelope(Process {
        metadata: None,
        processes,
    })))
}
