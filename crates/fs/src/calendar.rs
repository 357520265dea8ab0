//! Dates of timestamps, in UTC.

use crate::types::Timestamp;

const SECONDS_OF_DAY: i64 = 86_400;
const NANOS_OF_SECOND: i64 = 1_000_000_000;

impl Timestamp {
    /// Its date and its time of day in UTC, to the second.
    pub fn utc_date_and_clock(self) -> (String, String) {
        let seconds = self.0.div_euclid(NANOS_OF_SECOND);
        let (mut days, second) =
            (seconds.div_euclid(SECONDS_OF_DAY), seconds.rem_euclid(SECONDS_OF_DAY));
        let mut year = 1970;
        while days < 0 {
            year -= 1;
            days += days_of(year);
        }
        while days >= days_of(year) {
            days -= days_of(year);
            year += 1;
        }
        let february = days_of(year) - 337;
        let mut month = 1;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        let date = format!("{year:04}-{month:02}-{:02}", days + 1);
        (date, format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60))
    }
}

fn days_of(year: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if leap { 366 } else { 365 }
}
