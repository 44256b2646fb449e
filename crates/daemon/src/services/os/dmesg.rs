//! `Dmesg`: the kernel log, one record per message.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream;
use mainstay_api::common::{Data, Metadata};
use mainstay_api::os::DmesgRequest;
use mainstay_journal::Timestamp;
use mainstay_node::kmsg::{self, KernelLog, Look, Record};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tonic::{Response, Status};

use crate::rpc::Answers;

pub fn stream(request: &DmesgRequest) -> Result<Response<Answers<Data>>, Status> {
    let from = if request.tail {
        kmsg::From::Now
    } else {
        kmsg::From::Oldest
    };
    let log = KernelLog::open(from).map_err(|error| cannot_open(&error))?;
    let messages = Messages {
        log: watched(log).map_err(|error| cannot_read(&error))?,
        buffer: KernelLog::buffer(),
        booted: kmsg::boot_time(),
        follow: request.follow,
    };
    let messages = stream::try_unfold(messages, |mut messages| async {
        Ok(messages.next().await?.map(|data| (data, messages)))
    });
    Ok(Response::new(Box::pin(messages)))
}

#[expect(
    unsafe_code,
    reason = "registering an owned file descriptor with the reactor"
)]
fn watched(log: KernelLog) -> io::Result<AsyncFd<KernelLog>> {
    // SAFETY: a `KernelLog` owns one file descriptor from open to drop and never returns another.
    Ok(unsafe { AsyncFd::register_with_interest(log, Interest::READABLE) }?)
}

struct Messages {
    log: AsyncFd<KernelLog>,
    buffer: Vec<u8>,
    booted: SystemTime,
    follow: bool,
}

impl Messages {
    async fn next(&mut self) -> Result<Option<Data>, Status> {
        loop {
            let look = self.log.get_ref().next(&mut self.buffer);
            match look.map_err(|error| cannot_read(&error))? {
                Look::Record(length) => {
                    if let Some(record) = self.buffer.get(..length).and_then(Record::parse) {
                        return Ok(Some(self.message(&record)));
                    }
                }
                Look::Overrun => return Ok(Some(overrun())),
                Look::Empty if self.follow => {
                    let mut ready = self
                        .log
                        .readable()
                        .await
                        .map_err(|error| cannot_read(&error))?;
                    // The next read shows whether it was readable.
                    ready.clear_ready();
                }
                Look::Empty => return Ok(None),
            }
        }
    }

    fn message(&self, record: &Record<'_>) -> Data {
        let mut text = format!(
            "{}: {:>7}: [{}]: ",
            record.facility_name(),
            record.priority_name(),
            at(self.booted, record.since_boot)
        )
        .into_bytes();
        text.extend_from_slice(record.message);
        text.push(b'\n');
        Data {
            metadata: None,
            bytes: Bytes::from(text),
        }
    }
}

fn at(booted: SystemTime, since_boot: Duration) -> Timestamp {
    let since_epoch = booted.duration_since(UNIX_EPOCH).unwrap_or_default() + since_boot;
    Timestamp::from_nanos(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
}

fn overrun() -> Data {
    Data {
        metadata: Some(Metadata {
            error: "kernel messages were overwritten before they could be read".to_owned(),
            ..Metadata::default()
        }),
        bytes: Bytes::new(),
    }
}

fn cannot_open(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Status::permission_denied("the kernel log can only be read by a node that runs as root")
        }
        io::ErrorKind::NotFound => Status::unimplemented("this machine has no /dev/kmsg"),
        _ => cannot_read(error),
    }
}

fn cannot_read(error: &io::Error) -> Status {
    Status::internal(format!("cannot read the kernel log: {error}"))
}
