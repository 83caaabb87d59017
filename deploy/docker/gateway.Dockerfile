# Orbit's gateway service and nothing else. Its build context is the folder of the built programs (make images).
FROM scratch
COPY orbit-gateway /orbit-gateway
USER 65532:65532
ENV ORBIT_GATEWAY_ADDR=0.0.0.0:8081
EXPOSE 8081
ENTRYPOINT ["/orbit-gateway"]
