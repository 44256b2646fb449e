//! The kernel's view of its own clock: adjtimex(2), which sets nothing here.
#![allow(unsafe_code, reason = "no crate in use wraps adjtimex")]

use std::io;

/// The state of the kernel's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelClock {
    /// True if a time daemon keeps the clock synchronized.
    pub synchronized: bool,
    /// The time left to slew: the reference clock minus this one.
    pub offset_nanos: i64,
    pub estimated_error_micros: i64,
    pub max_error_micros: i64,
    pub frequency_ppm: f64,
    pub leap_insert: bool,
    pub leap_delete: bool,
    pub tai_offset_seconds: i32,
}

impl KernelClock {
    pub fn read() -> io::Result<Self> {
        // SAFETY: every field of `timex` is an integer or padding, for which zeros are valid.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a valid `timex`; `modes` 0 makes the call read only.
        let state = unsafe { libc::adjtimex(&raw mut timex) };
        if state < 0 {
            return Err(io::Error::last_os_error());
        }
        let has = |flag: i32| timex.status & flag != 0;
        let offset = timex.offset;
        Ok(Self {
            synchronized: !has(libc::STA_UNSYNC),
            offset_nanos: if has(libc::STA_NANO) {
                offset
            } else {
                offset.saturating_mul(1000)
            },
            estimated_error_micros: timex.esterror,
            max_error_micros: timex.maxerror,
            // The kernel scales by 2^16.
            #[expect(clippy::cast_precision_loss, reason = "at most 500 ppm")]
            frequency_ppm: timex.freq as f64 / 65536.0,
            leap_insert: has(libc::STA_INS),
            leap_delete: has(libc::STA_DEL),
            tai_offset_seconds: timex.tai,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_its_clock() {
        let clock = KernelClock::read().unwrap();
        assert!(clock.max_error_micros >= 0);
        assert!(clock.frequency_ppm.abs() <= 500.0);
    }
}
