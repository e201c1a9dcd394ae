//! When cross traffic comes and goes, as far as it was measured.

/// When cross traffic came and went, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossCourse {
    is_there: bool,
    /// Seconds since it came or went.
    pub age: f64,
    /// Seconds that it was there the last time, and away.
    pub on: f64,
    /// See above.
    pub off: f64,
}

impl CrossCourse {
    /// A span of this many seconds in which it took `share` of the link.
    pub fn pass(&mut self, seconds: f64, share: f64) {
        let is_there = share > 0.0;
        if is_there != self.is_there {
            *(if is_there { &mut self.off } else { &mut self.on }) = self.age;
            (self.is_there, self.age) = (is_there, 0.0);
        }
        self.age += seconds;
    }
}
