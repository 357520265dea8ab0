//! An authority of the tests' own, and what it certifies.

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use time::OffsetDateTime;

/// What is to be certified.
pub struct Wanted<'w> {
    /// DNS names, the first of which says who it is.
    pub names: &'w [&'w str],
    pub serial: u64,
    /// From when to when, in seconds from now.
    pub valid: (i64, i64),
    pub usage: ExtendedKeyUsagePurpose,
}

pub const DAY: i64 = 86_400;

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A program's, of this name.
pub fn program<'w>(names: &'w [&'w str], serial: u64) -> Wanted<'w> {
    let usage = ExtendedKeyUsagePurpose::ClientAuth;
    Wanted { names, serial, valid: (-DAY, DAY), usage }
}

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::now_utc() + time::Duration::seconds(seconds)
}

fn params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = DistinguishedName::new();
    let tail: String =
        key.public_key_raw().iter().rev().take(8).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name.push(DnType::CommonName, format!("Test {tail}"));
    params
}

impl Authority {
    pub fn new() -> Authority {
        Authority::of(KeyPair::generate().unwrap())
    }

    fn of(key: KeyPair) -> Authority {
        let params = params(&key);
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// Keeps it for [`kept`](Authority::kept).
    pub fn keep(&self, path: &Path) {
        std::fs::write(path, self.issuer.key().serialize_pem()).unwrap();
    }

    pub fn kept(path: &Path) -> Authority {
        Authority::of(KeyPair::from_pem(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// Its certificate.
    pub fn pem(&self) -> &str {
        &self.certificate
    }

    /// Puts credentials into a directory, in which this authority is believed.
    pub fn certify(&self, wanted: &Wanted<'_>, dir: &Path) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_before = at(wanted.valid.0);
        params.not_after = at(wanted.valid.1);
        params.serial_number = Some(SerialNumber::from(wanted.serial));
        params.extended_key_usages = vec![wanted.usage.clone()];
        params.subject_alt_names = wanted
            .names
            .iter()
            .map(|name| match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(Ia5String::try_from(*name).unwrap()),
            })
            .collect();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::create_dir_all(dir).unwrap();
        put(&dir.join("ca.pem"), self.pem(), 0o644);
        put(&dir.join("cert.pem"), &certificate.pem(), 0o644);
        put(&dir.join("key.pem"), &key.serialize_pem(), 0o600);
    }

    pub fn service(&self, dir: &Path) {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        let names = ["localhost", "127.0.0.1", "::1"];
        self.certify(&Wanted { usage, ..Wanted { names: &names, ..program(&[], 1) } }, dir);
    }

    pub fn program(&self, name: &str, dir: &Path) {
        self.certify(&program(&[name], 2), dir);
    }

    /// The list of what it has revoked.
    pub fn revoke(&self, serials: &[u64]) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: at(-1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: at(-1),
            next_update: at(DAY),
            crl_number: SerialNumber::from(serials.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// Puts a file in the place of another in one step.
pub fn put(path: &Path, text: &str, mode: u32) {
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(&new);
    std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::rename(&new, path).unwrap();
}

/// Longer than a service takes to look at its files.
pub const LOOKED: Duration = Duration::from_millis(1300);
