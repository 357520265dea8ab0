//! Why two sides do not trust each other, in words that say what to do.

use std::fmt::{self, Display, Formatter};

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};

/// The other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// It listens.
    Service,
    /// It has connected.
    Program,
}

/// Why another side is not trusted, or does not trust this one.
#[derive(Debug)]
pub struct Distrust<'e>(pub Peer, pub &'e Error);

impl Peer {
    fn its(self) -> &'static str {
        match self {
            Peer::Service => "the service's",
            Peer::Program => "the program's",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Peer::Service => "the service",
            Peer::Program => "the program",
        }
    }
}

impl Distrust<'_> {
    /// The error that this is for, if it is one of who is trusted.
    pub fn of(error: &std::io::Error) -> Option<&Error> {
        error.get_ref()?.downcast_ref()
    }

    fn certificate(&self, f: &mut Formatter<'_>, why: &CertificateError) -> fmt::Result {
        let its = self.0.its();
        match why {
            CertificateError::ExpiredContext { time, not_after } => write!(
                f,
                "{its} certificate was valid until {}, and the clock here says {}: make it anew, \
                 or set the clock that is wrong",
                Time(*not_after),
                Time(*time)
            ),
            CertificateError::NotValidYetContext { time, not_before } => write!(
                f,
                "{its} certificate is valid from {} on, and the clock here says {}: set the clock \
                 that is wrong",
                Time(*not_before),
                Time(*time)
            ),
            CertificateError::UnknownIssuer | CertificateError::BadSignature => write!(
                f,
                "{its} certificate is of no authority in ca.pem here: use credentials that were \
                 made together, or add its authority there"
            ),
            CertificateError::NotValidForNameContext { expected, presented } => {
                let names = presented.iter().map(|name| bare(name)).collect::<Vec<_>>();
                write!(
                    f,
                    "{its} certificate is for {}, not for {}: say one of its names, or make one \
                     with this name",
                    names.join(", "),
                    expected.to_str()
                )
            }
            CertificateError::Revoked => {
                write!(f, "{its} certificate is revoked: it takes a new one")
            }
            CertificateError::InvalidPurposeContext { .. } => write!(
                f,
                "{its} certificate is for another purpose: a service's is for serverAuth, a \
                 program's for clientAuth"
            ),
            other => write!(f, "{its} certificate is of no use: {other}"),
        }
    }

    /// What the other side has said.
    fn said(&self, f: &mut Formatter<'_>, alert: AlertDescription) -> fmt::Result {
        let name = self.0.name();
        match alert {
            AlertDescription::CertificateExpired => write!(
                f,
                "{name} says that this certificate has expired or is not valid yet; the clock \
                 here says {}: make it anew, or set the clock that is wrong",
                Time(UnixTime::now())
            ),
            AlertDescription::UnknownCA | AlertDescription::DecryptError => write!(
                f,
                "{name} knows no authority in its ca.pem that made this certificate: use \
                 credentials that were made together"
            ),
            AlertDescription::CertificateRevoked => {
                write!(f, "{name} says that this certificate is revoked: ask who runs it")
            }
            AlertDescription::CertificateRequired => {
                write!(f, "{name} wants a certificate: ask who runs it for credentials")
            }
            AlertDescription::ProtocolVersion => {
                write!(f, "{name} does not speak TLS 1.3: it is not Nearside, or serves --insecure")
            }
            AlertDescription::BadCertificate => {
                write!(f, "{name} does not take this certificate: the log there says why")
            }
            other => write!(f, "{name} ended the handshake ({other:?}): its log may say why"),
        }
    }
}

/// What a certificate is for, as rustls shows it: `DnsName("a")`, `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')'));
    inner.trim_matches('"')
}

impl Display for Distrust<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.0.name();
        match self.1 {
            Error::InvalidCertificate(why) => self.certificate(f, why),
            Error::AlertReceived(alert) => self.said(f, *alert),
            Error::NoCertificatesPresented => {
                write!(f, "{name} showed no certificate: it takes credentials of its own")
            }
            Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
                write!(f, "{name} does not speak TLS: both sides have to, or neither")
            }
            Error::PeerIncompatible(why) => {
                write!(f, "{name} does not speak TLS 1.3 as it is spoken here: {why:?}")
            }
            other => write!(f, "{name} is not trusted: {other}"),
        }
    }
}

/// A time in UTC to the second.
struct Time(UnixTime);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let second = seconds % 86_400;
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
    }
}

/// The day so many days after the first of 1970.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // 400 years have the same number of days, wherever they begin
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_said_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (13_601_088_000, "2401-01-01 00:00:00 UTC"),
        ] {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            assert_eq!(Time(time).to_string(), text);
        }
    }

    #[test]
    fn names_of_certificates_are_bare() {
        assert_eq!(bare("DnsName(\"near.example\")"), "near.example");
        assert_eq!(bare("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(bare("other"), "other");
    }
}
