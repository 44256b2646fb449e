//! `PacketCapture`: the packets of an interface as a file.

use bytes::Bytes;
use futures_util::stream;
use mainstay_api::common::Data;
use mainstay_api::machine::{BpfInstruction, PacketCaptureRequest};
use mainstay_capture::{
    Capture, CaptureError, CaptureOptions, Format, Instruction, MAX_INSTRUCTIONS,
};
use tonic::{Code, Status};
use tracing::info;

use crate::requester::Requester;
use crate::rpc::{Answers, Bounds, Slots};
use mainstay_error_chain::chain;

/// Each capture holds a socket and its buffers, of about 5 MiB.
static CAPTURES: Slots = Slots::new(Bounds {
    shared: 16,
    reserved: 0,
    per_caller: 4,
});

pub(super) fn stream(request: PacketCaptureRequest) -> Result<Answers<Data>, Status> {
    let options = options(request)?;
    let slot = CAPTURES.take(Requester::current()).map_err(|error| {
        Status::resource_exhausted(format!(
            "cannot start another packet capture: {error}; end one first"
        ))
    })?;
    let interface = options.interface.clone();
    let capture = Capture::open(options).map_err(|error| status(&error))?;
    let running = Running {
        capture: Some(capture),
        interface,
        _slot: slot,
    };
    Ok(Box::pin(stream::try_unfold(running, |mut running| async {
        let Some(capture) = &mut running.capture else {
            return Ok(None);
        };
        let bytes = capture.next_chunk().await;
        let bytes = bytes.map_err(|error| status(&error))?;
        let data = Data {
            metadata: None,
            bytes: Bytes::from(bytes),
        };
        Ok(Some((data, running)))
    })))
}

/// A capture; dropped when its caller is gone.
#[derive(Debug)]
struct Running {
    /// Always there until the drop.
    capture: Option<Capture>,
    interface: String,
    _slot: crate::rpc::Slot,
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut capture) = self.capture.take() else {
            return;
        };
        let counted = capture.statistics();
        // Closed before the log says so.
        drop(capture);
        info!(
            interface = self.interface,
            packets = counted.received,
            dropped = counted.dropped,
            "packet capture ended"
        );
    }
}

fn options(request: PacketCaptureRequest) -> Result<CaptureOptions, Status> {
    let count = request.bpf_filter.len();
    if count > MAX_INSTRUCTIONS {
        return Err(status(&CaptureError::ProgramTooLong(count)));
    }
    let program = request.bpf_filter.iter().enumerate();
    let program = program.map(|(index, instruction)| {
        narrowed(instruction).ok_or_else(|| {
            Status::invalid_argument(format!(
                "instruction {index} of the filter program does not fit: op has 16 bits, jt and \
                 jf have 8"
            ))
        })
    });
    Ok(CaptureOptions {
        program: program.collect::<Result<_, _>>()?,
        interface: request.interface,
        promiscuous: request.promiscuous,
        snap_len: request.snap_len,
        format: if request.pcapng {
            Format::Pcapng
        } else {
            Format::Pcap
        },
    })
}

fn narrowed(instruction: &BpfInstruction) -> Option<Instruction> {
    Some(Instruction {
        op: instruction.op.try_into().ok()?,
        jt: instruction.jt.try_into().ok()?,
        jf: instruction.jf.try_into().ok()?,
        k: instruction.k,
    })
}

fn status(error: &CaptureError) -> Status {
    use CaptureError as Error;
    let code = match error {
        Error::NoInterface
        | Error::BadInterface(_)
        | Error::LinkType { .. }
        | Error::SnapLen(_)
        | Error::ProgramTooLong(_)
        | Error::BadProgram(_) => Code::InvalidArgument,
        Error::NotFound(_) => Code::NotFound,
        Error::Down(_) | Error::Denied(_) => Code::FailedPrecondition,
        Error::Unsupported(_) => Code::Unimplemented,
        Error::WentDown { .. } => Code::Unavailable,
        Error::Io { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}
