# Orbit's management service and nothing else. Its build context is the folder of the built programs (make images).
FROM scratch
COPY orbit-management /orbit-management
USER 65532:65532
ENV ORBIT_MANAGEMENT_ADDR=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["/orbit-management"]
CMD ["serve"]
