//! An interpreter of classic BPF, for tests: a verdict is what the kernel's would be.

use crate::Instruction;

/// Runs a program over a packet; returns how many bytes of it are accepted.
pub(super) fn run(program: &[Instruction], packet: &[u8]) -> u32 {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
    let mut at = 0;
    loop {
        let Instruction { op, jt, jf, k } = program[at];
        at += 1;
        let load = |size: usize, offset: u64| -> Option<u32> {
            let start = usize::try_from(offset).ok()?;
            let bytes = packet.get(start..)?.get(..size)?;
            Some(
                bytes
                    .iter()
                    .fold(0, |value, byte| value << 8 | u32::from(*byte)),
            )
        };
        let loaded =
            |value: Option<u32>, into: &mut u32| value.map(|value| *into = value).is_some();
        let operand = if op & 0x08 != 0 { x } else { k };
        let ok = match op {
            0x20 => loaded(load(4, k.into()), &mut a),
            0x28 => loaded(load(2, k.into()), &mut a),
            0x30 => loaded(load(1, k.into()), &mut a),
            0x40 => loaded(load(4, u64::from(k) + u64::from(x)), &mut a),
            0x48 => loaded(load(2, u64::from(k) + u64::from(x)), &mut a),
            0x50 => loaded(load(1, u64::from(k) + u64::from(x)), &mut a),
            0x80 => loaded(u32::try_from(packet.len()).ok(), &mut a),
            0x00 => loaded(Some(k), &mut a),
            0x60 => loaded(memory.get(k as usize).copied(), &mut a),
            0x01 => loaded(Some(k), &mut x),
            0x61 => loaded(memory.get(k as usize).copied(), &mut x),
            0xb1 => loaded(load(1, k.into()).map(|byte| (byte & 0xf) * 4), &mut x),
            0x02 => memory.get_mut(k as usize).map(|cell| *cell = a).is_some(),
            0x03 => memory.get_mut(k as usize).map(|cell| *cell = x).is_some(),
            0x54 | 0x5c => loaded(Some(a & operand), &mut a),
            0x44 | 0x4c => loaded(Some(a | operand), &mut a),
            0x04 | 0x0c => loaded(Some(a.wrapping_add(operand)), &mut a),
            0x07 => loaded(Some(a), &mut x),
            0x87 => loaded(Some(x), &mut a),
            0x05 => {
                at += k as usize;
                true
            }
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                let holds = match op & 0xf0 {
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    _ => a & operand != 0,
                };
                at += usize::from(if holds { jt } else { jf });
                true
            }
            0x06 => return k,
            0x16 => return a,
            _ => panic!("unknown instruction {op:#x}"),
        };
        if !ok {
            return 0;
        }
    }
}
