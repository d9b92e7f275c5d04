// What operators ask of the master: members, routes and leases in pages, drains, evictions. It reads the core and decides nothing.
#pragma once

#include "service.h"

namespace fluxon::master {

class Service::OperatorServer final : public schema::Operator::Server {
 public:
  explicit OperatorServer(Service& service) : service_(service) {}

  kj::Promise<void> members(MembersContext) override;
  kj::Promise<void> routes(RoutesContext) override;
  kj::Promise<void> leases(LeasesContext) override;
  kj::Promise<void> drain(DrainContext) override;
  kj::Promise<void> evict(EvictContext) override;
  kj::Promise<void> status(StatusContext) override;

 private:
  Service& service_;
};

}  // namespace fluxon::master
