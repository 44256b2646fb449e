//! The protobuf wire format: enough to walk a message field by field without its schema.

/// The error of a message that no protobuf decoder would accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message of this contract")]
pub struct Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    /// The encoded field, key and length included.
    pub(crate) raw: &'a [u8],
}

/// The fields of a message in order, up to the first malformed one. Groups, which this contract has
/// never used, count as malformed.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let whole = self.rest;
        let key = self.varint()?;
        let key = u32::try_from(key).map_err(|_| Malformed)?;
        let number = key >> 3;
        if number == 0 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Value::Fixed32
            }
            _ => return Err(Malformed),
        };
        let raw = &whole[..whole.len() - self.rest.len()];
        Ok(Field { number, value, raw })
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            // The tenth byte holds one bit.
            if index == 9 && byte > 1 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// True if a packed list holds nothing but whole varints.
pub(crate) fn is_packed_varints(mut list: &[u8]) -> bool {
    while !list.is_empty() {
        let mut fields = Fields { rest: list };
        if fields.varint().is_err() {
            return false;
        }
        list = fields.rest;
    }
    true
}

pub(crate) fn put_varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        // Only the low seven bits are kept.
        #[allow(clippy::cast_possible_truncation)]
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)]
    out.push(value as u8);
}

pub(crate) fn varint_length(value: usize) -> usize {
    let bits = (usize::BITS - value.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

/// Appends the length-delimited field `number` with the contents `bytes`.
pub(crate) fn put_bytes(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    put_varint(bytes.len(), out);
    out.extend_from_slice(bytes);
}
