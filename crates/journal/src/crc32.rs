//! CRC-32 (the IEEE polynomial), eight bytes at a step.
//!
//! Only for finding damage; it proves nothing against someone who wants to deceive.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte: u32 = 0;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xEDB8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte as usize] = crc;
        byte += 1;
    }
    let mut step = 1;
    while step < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[step - 1][byte];
            tables[step][byte] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        step += 1;
    }
    tables
}

/// A checksum taken over several pieces as if they were one.
#[derive(Clone, Copy)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) const fn new() -> Self {
        Self(!0)
    }

    pub(crate) fn update(self, bytes: &[u8]) -> Self {
        let mut crc = self.0;
        let (eights, rest) = bytes.as_chunks::<8>();
        for &[a, b, c, d, e, f, g, h] in eights {
            let [a, b, c, d] = (crc ^ u32::from_le_bytes([a, b, c, d])).to_le_bytes();
            crc = TABLES[7][usize::from(a)]
                ^ TABLES[6][usize::from(b)]
                ^ TABLES[5][usize::from(c)]
                ^ TABLES[4][usize::from(d)]
                ^ TABLES[3][usize::from(e)]
                ^ TABLES[2][usize::from(f)]
                ^ TABLES[1][usize::from(g)]
                ^ TABLES[0][usize::from(h)];
        }
        for byte in rest {
            let [low, ..] = crc.to_le_bytes();
            crc = (crc >> 8) ^ TABLES[0][usize::from(low ^ byte)];
        }
        Self(crc)
    }

    pub(crate) const fn finish(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Crc32;

    #[test]
    fn matches_the_published_check_value() {
        assert_eq!(Crc32::new().update(b"123456789").finish(), 0xCBF4_3926);
    }

    #[test]
    fn pieces_give_the_same_sum_as_the_whole() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let whole = Crc32::new().update(&bytes).finish();
        for cut in [0, 1, 7, 8, 9, 500, 999, 1000] {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(
                Crc32::new().update(left).update(right).finish(),
                whole,
                "cut at {cut}"
            );
        }
    }
}
