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
    let messages = Messages::open(from, request.follow)?;
    let messages = stream::try_unfold(messages, |mut messages| async {
        let next = messages.next().await?;
        Ok(next.map(|message| (message.into_data(), messages)))
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

/// The kernel log as it is read.
pub(in crate::services) struct Messages {
    log: AsyncFd<KernelLog>,
    buffer: Vec<u8>,
    booted: SystemTime,
    follow: bool,
}

/// A message of the kernel log, or what there is instead.
pub(in crate::services) enum Message {
    Record {
        sequence: u64,
        time: Timestamp,
        /// As clients know it, with its newline.
        text: Vec<u8>,
    },
    /// Records were overwritten before they could be read.
    Overrun,
}

impl Messages {
    /// Reads to the newest record, or with `follow` on.
    pub(in crate::services) fn open(from: kmsg::From, follow: bool) -> Result<Self, Status> {
        let log = KernelLog::open(from).map_err(|error| cannot_open(&error))?;
        Ok(Self {
            log: watched(log).map_err(|error| cannot_read(&error))?,
            buffer: KernelLog::buffer(),
            booted: kmsg::boot_time(),
            follow,
        })
    }

    pub(in crate::services) async fn next(&mut self) -> Result<Option<Message>, Status> {
        loop {
            let look = self.log.get_ref().next(&mut self.buffer);
            match look.map_err(|error| cannot_read(&error))? {
                Look::Record(length) => {
                    if let Some(record) = self.buffer.get(..length).and_then(Record::parse) {
                        return Ok(Some(self.message(&record)));
                    }
                }
                Look::Overrun => return Ok(Some(Message::Overrun)),
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

    fn message(&self, record: &Record<'_>) -> Message {
        let time = at(self.booted, record.since_boot);
        let mut text = format!(
            "{}: {:>7}: [{time}]: ",
            record.facility_name(),
            record.priority_name(),
        )
        .into_bytes();
        text.extend_from_slice(record.message);
        text.push(b'\n');
        Message::Record {
            sequence: record.sequence,
            time,
            text,
        }
    }
}

impl Message {
    pub(in crate::services) fn into_data(self) -> Data {
        match self {
            Self::Record { text, .. } => Data {
                metadata: None,
                bytes: Bytes::from(text),
            },
            Self::Overrun => overrun(),
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
