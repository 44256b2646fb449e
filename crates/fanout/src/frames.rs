//! gRPC framing of messages in a body: a flag, a length, and the message.

use bytes::{Buf, BufMut, BytesMut};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt;
use tonic::body::Body;
use tonic::{Code, Status};

/// The bytes of a frame header: one flag and four bytes of length.
pub(crate) const HEAD: usize = 5;

/// The answer of one node, message by message. Lengths are bounded and checked, and every end
/// other than OK is an error with its reason.
pub(crate) struct Messages {
    body: Body,
    buffer: BytesMut,
    /// The trailers have arrived, so no message follows.
    ended: bool,
}

impl Messages {
    pub(crate) fn of(response: Response<Body>) -> Result<Self, Status> {
        let (parts, body) = response.into_parts();
        if let Some(status) = status_in(&parts.headers) {
            return ok(status).map(|()| Self::new(body, true));
        }
        let is_grpc = parts
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if parts.status != StatusCode::OK || !is_grpc {
            return Err(Status::unknown(format!(
                "it answered with HTTP status {} and not with gRPC; check the address and the port",
                parts.status.as_u16()
            )));
        }
        Ok(Self::new(body, false))
    }

    fn new(body: Body, ended: bool) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            ended,
        }
    }

    /// Returns the length of the next message; `None` at the end of an answer with status OK.
    pub(crate) async fn length(&mut self, max: usize) -> Result<Option<usize>, Status> {
        while self.buffer.len() < HEAD {
            if self.more().await? {
                continue;
            }
            return if self.buffer.is_empty() {
                Ok(None)
            } else {
                Err(cut_short())
            };
        }
        let mut head = &self.buffer[..HEAD];
        if head.get_u8() != 0 {
            return Err(Status::internal(
                "it sent a compressed message although compression was not negotiated",
            ));
        }
        let length = head.get_u32() as usize;
        if length > max {
            return Err(Status::resource_exhausted(format!(
                "it sent a message of {length} bytes; the most is {max}"
            )));
        }
        Ok(Some(length))
    }

    /// Returns the message whose length has been read, with its frame header.
    pub(crate) async fn message(&mut self, length: usize) -> Result<BytesMut, Status> {
        while self.buffer.len() < HEAD + length {
            if !self.more().await? {
                return Err(cut_short());
            }
        }
        // A large message usually ends where the buffer does: it can then grow without a copy.
        if self.buffer.len() == HEAD + length {
            return Ok(std::mem::take(&mut self.buffer));
        }
        Ok(self.buffer.split_to(HEAD + length))
    }

    /// Waits for the status of a unary call after its message.
    pub(crate) async fn end(&mut self) -> Result<(), Status> {
        match self.length(usize::MAX).await? {
            None => Ok(()),
            Some(_) => Err(Status::internal(
                "it sent a second message in answer to a unary call",
            )),
        }
    }

    /// Reads the next frame; `false` at the end.
    async fn more(&mut self) -> Result<bool, Status> {
        if self.ended {
            return Ok(false);
        }
        let Some(frame) = self.body.frame().await else {
            return Err(Status::unavailable(
                "the connection was lost before the answer was complete",
            ));
        };
        match frame?.into_data() {
            Ok(data) => {
                self.buffer.put(data);
                Ok(true)
            }
            Err(frame) => {
                let status = frame.trailers_ref().and_then(status_in);
                ok(status.unwrap_or_else(cut_short))?;
                self.ended = true;
                Ok(false)
            }
        }
    }
}

/// Writes the frame header of a message whose first [`HEAD`] bytes are reserved for it.
pub(crate) fn set_length(message: &mut [u8]) -> Result<(), Status> {
    let Some((head, body)) = message.split_first_chunk_mut::<HEAD>() else {
        return Err(cut_short());
    };
    let length = u32::try_from(body.len()).map_err(|_| cut_short())?;
    head[0] = 0;
    head[1..].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn status_in(headers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(headers)
}

fn ok(status: Status) -> Result<(), Status> {
    match status.code() {
        Code::Ok => Ok(()),
        _ => Err(status),
    }
}

fn cut_short() -> Status {
    Status::internal("its answer is truncated")
}
