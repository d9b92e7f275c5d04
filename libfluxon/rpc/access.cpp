#include "rpc/access.h"

#include <errno.h>
#include <fcntl.h>
#include <kj/compat/tls.h>
#include <kj/debug.h>
#include <kj/io.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <vector>

namespace fluxon::rpc {
namespace {

constexpr size_t kMostPemBytes = 1 << 20;
constexpr const char* kBegin = "-----BEGIN CERTIFICATE-----";

Result<std::string> readPem(const std::string& key, const std::string& path) {
  const std::string what = "common." + key + ": ";
  const kj::AutoCloseFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return systemError(what + "open " + path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return systemError(what + "stat " + path, errno);
  if (!S_ISREG(info.st_mode)) return Error{Code::badConfig, what + path + " is not a file"};
  if (key == "tls_key" && info.st_uid != ::geteuid() && info.st_uid != 0)
    return Error{Code::denied, what + path + " belongs to user " + std::to_string(info.st_uid) + ", not to " + std::to_string(::geteuid())};
  if (key == "tls_key" && (info.st_mode & 0077) != 0)
    return Error{Code::denied, what + path + " may be read by others (accepted: mode 0600 or 0400)"};
  if (static_cast<uint64_t>(info.st_size) > kMostPemBytes)
    return Error{Code::badConfig, what + path + " is longer than " + std::to_string(kMostPemBytes) + " bytes"};
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  if (n < 0) return systemError(what + "read " + path, errno);
  text.resize(static_cast<size_t>(n));
  return text;
}

// KJ says with exceptions that a text is not what it should be.
template <class T>
Result<T> parsed(const std::string& key, const std::string& path, const char* wanted, const std::function<T()>& parse) {
  try {
    return parse();
  } catch (const kj::Exception&) {
    return Error{Code::badConfig, "common." + key + ": " + path + " holds no " + wanted + " (accepted: PEM)"};
  }
}

// KJ takes any two; the first one to connect would hear of it.
bool fit(const std::string& certificate, const std::string& key) {
  const auto open = [](const std::string& text) { return ::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())); };
  BIO* const certificateText = open(certificate);
  BIO* const keyText = open(key);
  X509* const leaf = ::PEM_read_bio_X509(certificateText, nullptr, nullptr, nullptr);
  EVP_PKEY* const secret = ::PEM_read_bio_PrivateKey(keyText, nullptr, nullptr, const_cast<char*>(""));
  const bool good = leaf && secret && ::X509_check_private_key(leaf, secret) == 1;
  ::ERR_clear_error();
  ::EVP_PKEY_free(secret);
  ::X509_free(leaf);
  ::BIO_free(keyText);
  ::BIO_free(certificateText);
  return good;
}

kj::StringPtr pointer(const std::string& text) { return {text.c_str(), text.size()}; }

// Each certificate of the file is trusted by itself.
Result<std::vector<kj::TlsCertificate>> authorities(const std::string& path) {
  const Result<std::string> pem = readPem("tls_ca", path);
  if (!pem) return pem.error();
  return parsed<std::vector<kj::TlsCertificate>>("tls_ca", path, "certificate", [&] {
    std::vector<kj::TlsCertificate> found;
    const std::string& text = pem.value();
    for (size_t at = text.find(kBegin); at != std::string::npos;) {
      const size_t next = text.find(kBegin, at + 1);
      const std::string one = text.substr(at, next == std::string::npos ? next : next - at);
      found.emplace_back(pointer(one));
      at = next;
    }
    KJ_REQUIRE(!found.empty());
    return found;
  });
}

}  // namespace

Access::Access() = default;
Access::~Access() noexcept(false) = default;

Result<kj::Own<Access>> Access::load(const Config::Common& common, Side side) {
  auto access = kj::heap<Access>();
  Result<net::Secret> secret = net::Secret::load(common.secretFile);
  if (!secret) return Error{secret.error().code, "common.secret_file: " + secret.error().detail};
  access->secret_ = std::move(secret).value();
  const bool hasCertificate = !common.tlsCertificate.empty();
  if (common.tlsCa.empty() && !hasCertificate) return access;
  if (side == Side::listens && !hasCertificate)
    return Error{Code::badConfig, "common.tls_ca is set and master.listen needs common.tls_certificate and common.tls_key as well"};
  if (side == Side::connects && common.tlsCa.empty())
    return Error{Code::badConfig, "common.tls_certificate is set and common.master needs common.tls_ca as well, to know the master by"};

  kj::TlsContext::Options options;
  options.useSystemTrustStore = false;
  options.minVersion = kj::TlsVersion::TLS_1_2;
  std::vector<kj::TlsCertificate> trusted;
  if (!common.tlsCa.empty()) {
    Result<std::vector<kj::TlsCertificate>> found = authorities(common.tlsCa);
    if (!found) return found.error();
    trusted = std::move(found).value();
    options.trustedCertificates = kj::arrayPtr(trusted.data(), trusted.size());
    options.verifyClients = true;
  }
  kj::Maybe<kj::TlsKeypair> pair;
  if (hasCertificate) {
    const Result<std::string> certificate = readPem("tls_certificate", common.tlsCertificate), key = readPem("tls_key", common.tlsKey);
    if (!certificate) return certificate.error();
    if (!key) return key.error();
    Result<kj::TlsCertificate> chain = parsed<kj::TlsCertificate>("tls_certificate", common.tlsCertificate, "certificate",
                                                                  [&] { return kj::TlsCertificate(pointer(certificate.value())); });
    if (!chain) return chain.error();
    Result<kj::TlsPrivateKey> secretKey = parsed<kj::TlsPrivateKey>("tls_key", common.tlsKey, "private key without a password",
                                                                    [&] { return kj::TlsPrivateKey(pointer(key.value())); });
    if (!secretKey) return secretKey.error();
    if (!fit(certificate.value(), key.value()))
      return Error{Code::badConfig, "common.tls_key: " + common.tlsKey + " is not the key of common.tls_certificate"};
    options.defaultKeypair = pair.emplace(kj::TlsKeypair{std::move(secretKey).value(), std::move(chain).value()});
  }
  try {
    (side == Side::listens ? access->server_ : access->client_) = kj::heap<kj::TlsContext>(options);
  } catch (const kj::Exception& error) {
    return Error{Code::badConfig, std::string("TLS: ") + error.getDescription().cStr()};
  }
  return access;
}

kj::Promise<kj::Own<kj::AsyncIoStream>> Access::asClient(kj::Own<kj::AsyncIoStream> stream, const std::string& host) {
  if (client_.get() == nullptr) return kj::mv(stream);
  return client_->wrapClient(kj::mv(stream), pointer(host));
}

kj::Promise<kj::Own<kj::AsyncIoStream>> Access::asServer(kj::Own<kj::AsyncIoStream> stream) {
  if (server_.get() == nullptr) return kj::mv(stream);
  return server_->wrapServer(kj::mv(stream));
}

}  // namespace fluxon::rpc
