//! An authority: a key, and what it signs.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use time::{Duration, OffsetDateTime};

use super::issued::Issued;
use crate::error::{self, Error, Result};

const KEY_NAME: &str = "key.pem";
const CERTIFICATE_NAME: &str = "cert.pem";
/// Days that an authority is of use.
const DAYS: i64 = 3653;
/// Certificates are valid from so long ago on, for clocks that are late.
const BEFORE: Duration = Duration::HOUR;
/// Bytes of a serial number.
const SERIAL_BYTES: usize = 16;

/// Which side a certificate is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    Service,
    Program,
}

impl For {
    /// Its name in the authority's list.
    pub fn name(self) -> &'static str {
        match self {
            For::Service => "service",
            For::Program => "program",
        }
    }

    fn usage(self) -> ExtendedKeyUsagePurpose {
        match self {
            For::Service => ExtendedKeyUsagePurpose::ServerAuth,
            For::Program => ExtendedKeyUsagePurpose::ClientAuth,
        }
    }
}

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

fn failed(error: rcgen::Error) -> Error {
    Error::Server(format!("the certificate cannot be made: {error}"))
}

impl Authority {
    /// The one in this directory, made where there is none; and whether it was made.
    pub fn open(dir: &Path) -> Result<(Authority, bool)> {
        if dir.join(KEY_NAME).exists() {
            return Ok((Authority::known(dir)?, false));
        }
        let key = KeyPair::generate().map_err(failed)?;
        let params = params(&key);
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        // the key last: with it there is an authority
        put(&dir.join(CERTIFICATE_NAME), &certificate, 0o644)?;
        put(&dir.join(KEY_NAME), &key.serialize_pem(), 0o600)?;
        Ok((Authority { issuer: Issuer::new(params, key), certificate }, true))
    }

    /// The one in this directory.
    pub fn known(dir: &Path) -> Result<Authority> {
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).map_err(error::io(&path))
        };
        let key = KeyPair::from_pem(&read(KEY_NAME)?).map_err(failed)?;
        let certificate = read(CERTIFICATE_NAME)?;
        Ok(Authority { issuer: Issuer::new(params(&key), key), certificate })
    }

    /// Puts new credentials into a directory: a key, a certificate with these names, and whom to
    /// believe.
    pub fn certify(
        &self,
        (side, names): (For, &[String]),
        days: u16,
        dir: &Path,
        issued: &mut Issued,
    ) -> Result<()> {
        let key = KeyPair::generate().map_err(failed)?;
        let (serial, now) = (serial()?, OffsetDateTime::now_utc());
        let mut params = CertificateParams::default();
        params.not_before = now - BEFORE;
        params.not_after = now + Duration::days(days.into());
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.distinguished_name = named(&names[0]);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![side.usage()];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names =
            names.iter().map(|name| alternative(name)).collect::<Result<_>>()?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        // before anybody can have it, so that it can be revoked
        issued.add(&serial, side, &names[0])?;
        put(&dir.join("ca.pem"), &self.certificate, 0o644)?;
        put(&dir.join("key.pem"), &key.serialize_pem(), 0o600)?;
        put(&dir.join("cert.pem"), &certificate.pem(), 0o644)
    }

    /// Writes the list of all that are revoked.
    pub fn list_revoked(&self, issued: &Issued, path: &Path) -> Result<()> {
        let now = OffsetDateTime::now_utc();
        let revoked = |(serial, time): (Vec<u8>, OffsetDateTime)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial),
            revocation_time: time,
            reason_code: None,
            invalidity_date: None,
        };
        let number = now.unix_timestamp().unsigned_abs();
        let list = CertificateRevocationListParams {
            this_update: now - BEFORE,
            next_update: now + Duration::days(DAYS),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: issued.revoked().into_iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(failed)?;
        put(path, &list, 0o644)
    }
}

/// What an authority says of itself. Its name is its key's, so that two are never taken for one.
fn params(key: &KeyPair) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.not_before = now - BEFORE;
    params.not_after = now + Duration::days(DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let tail = key.public_key_raw().iter().rev().take(8);
    let tail: String = tail.map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = named(&format!("Nearside {tail}"));
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

fn alternative(name: &str) -> Result<SanType> {
    match name.parse() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ia5String::try_from(name).map(SanType::DnsName).map_err(failed),
    }
}

/// A number that no other certificate has: positive, as the format wants it.
fn serial() -> Result<[u8; SERIAL_BYTES]> {
    let urandom = Path::new("/dev/urandom");
    let mut serial = [0; SERIAL_BYTES];
    let file = std::fs::File::open(urandom);
    file.and_then(|mut file| file.read_exact(&mut serial)).map_err(error::io(urandom))?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

/// Puts a file with these permission bits in the place of another in one step.
pub fn put(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error::io(path)(error)),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&new, path)).map_err(error::io(path))
}
